// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"maesh.dev/ichor/test/hollow/kubernetes/configtest"
	"maesh.dev/ichor/test/hollow/kubernetes/kubelet"
	"maesh.dev/ichor/test/hollow/workload"
)

func TestNodeNamesFollowHostnames(t *testing.T) {
	t.Parallel()

	for hostname, want := range map[string]string{
		"rack1-a": "rack1-a", "Rack1_A": "rack1-a", "host.example.org": "host.example.org", "-x-": "x", "höst": "hst",
	} {
		if got, err := nodeNameOf(hostname); err != nil || got != want {
			t.Errorf("name of %q: got %q, %v, want %q", hostname, got, err, want)
		}
	}

	if name, err := nodeNameOf("__"); err == nil {
		t.Errorf("name of a hostname without letters: got %q, want an error", name)
	}
}

func TestDiscoveryRemembersWhoFellSilent(t *testing.T) {
	t.Parallel()

	now := time.Unix(0, 0)
	discovery := NewDiscovery()
	discovery.now = func() time.Time { return now }

	one, two, three := netip.MustParseAddr("127.0.20.1"), netip.MustParseAddr("127.0.20.2"), netip.MustParseAddr("127.0.20.3")
	discovery.announce("x", "a", two)
	discovery.announce("x", "b", one)
	discovery.announce("other", "c", three)

	steps := []struct {
		name string
		do   func()
		want []netip.Addr
	}{
		{"both run", func() {}, []netip.Addr{one, two}},
		{"one lost power a minute ago", func() { discovery.fallSilent("x", "a"); now = now.Add(time.Minute) }, []netip.Addr{one, two}},
		{"and half an hour", func() { now = now.Add(30 * time.Minute) }, []netip.Addr{one}},
		{"it came back under another address", func() { discovery.announce("x", "a", three) }, []netip.Addr{one, three}},
	}

	for _, step := range steps {
		step.do()

		if diff := cmp.Diff(step.want, discovery.Endpoints("x"), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s: endpoints (-want +got):\n%s", step.name, diff)
		}
	}
}

func TestEveryPictureIsSeenInOrder(t *testing.T) {
	t.Parallel()

	seen := make(chan string, 8)

	b := newBoard(func(status workload.Status) { seen <- fmt.Sprint(status.NodeReady, len(status.Services)) })
	b.update(func(s *workload.Status) { s.NodeReady = true })
	b.update(func(s *workload.Status) { s.NodeReady = true })
	b.service(workload.Service{ID: "cri"})
	b.service(workload.Service{ID: "cri", Running: true})
	b.service(workload.Service{ID: "etcd"})

	for i, want := range []string{"true 0", "true 1", "true 1", "true 2"} {
		select {
		case got := <-seen:
			if got != want {
				t.Errorf("picture %d: got %q, want %q", i, got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("picture %d was not seen within 10 s", i)
		}
	}

	b.close()
	b.update(func(s *workload.Status) { s.NodeReady = false })

	if len(seen) > 0 {
		t.Errorf("after the end: got %q, want nothing", <-seen)
	}
}

func TestWhatTalosWritesToANode(t *testing.T) {
	t.Parallel()

	cluster := configtest.New(t, "https://127.0.20.1:6443")
	controlPlaneTaint := corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}

	for _, test := range []struct {
		name string
		got  kubelet.Wanted
		want kubelet.Wanted
	}{
		{
			"a control plane",
			wantedOf(cluster.ControlPlane(t)),
			kubelet.Wanted{
				Labels: map[string]string{
					"node-role.kubernetes.io/control-plane":                   "",
					"node.kubernetes.io/exclude-from-external-load-balancers": "",
				},
				Taints: []corev1.Taint{controlPlaneTaint},
			},
		},
		{
			"a control plane that takes pods",
			wantedOf(cluster.ControlPlane(t, "{cluster: {allowSchedulingOnControlPlanes: true}, machine: {nodeLabels: {$patch: delete}}}")),
			kubelet.Wanted{Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}},
		},
		{
			"a worker with labels and taints",
			wantedOf(cluster.Worker(t, "machine: {nodeLabels: {rack: a}, nodeTaints: {gpu: 'yes:NoExecute', slow: PreferNoSchedule}}")),
			kubelet.Wanted{
				Labels: map[string]string{"rack": "a"},
				Taints: []corev1.Taint{
					{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoExecute},
					{Key: "slow", Effect: corev1.TaintEffectPreferNoSchedule},
				},
			},
		},
	} {
		slices.SortFunc(test.got.Taints, func(a, b corev1.Taint) int { return strings.Compare(a.Key, b.Key) })
		test.got.Annotations = nil

		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestTheKubeletsVersionIsItsImages(t *testing.T) {
	t.Parallel()

	for image, want := range map[string]string{
		"ghcr.io/siderolabs/kubelet:v1.36.1":                 "v1.36.1",
		"ghcr.io/siderolabs/kubelet:v1.36.1-fat":             "v1.36.1",
		"registry.example.org:5000/kubelet:v1.36.1@sha256:0": "v1.36.1",
		"registry.example.org:5000/kubelet":                  "",
	} {
		if got := kubeletVersion(image); got != want {
			t.Errorf("version of %s: got %q, want %q", image, got, want)
		}
	}
}

func TestOptionsThatCanNotWork(t *testing.T) {
	t.Parallel()

	kube := filepath.Join(t.TempDir(), "kube")
	if err := os.WriteFile(kube, nil, 0o700); err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		name    string
		options Options
		want    string
	}{
		{"no path", Options{}, "no path to the kube executable"},
		{"a path without a file", Options{Kube: kube + "-missing"}, "build it first"},
		{"an unknown kind of CNI", Options{Kube: kube, CNI: "flannel"}, `CNI is "flannel", want Ready or Absent`},
	} {
		if _, err := New(test.options); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}

func TestChildrenAreNotMistaken(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		args []string
		want bool
		code int
	}{
		{[]string{"hollow"}, false, 0},
		{[]string{"hollow", "run"}, false, 0},
		{[]string{"hollow", childCommand}, true, 2},
		{[]string{"hollow", childCommand, "nothing"}, true, 2},
	} {
		if handled, code := ChildMain(test.args); handled != test.want || code != test.code {
			t.Errorf("%v: got %v, %d, want %v, %d", test.args, handled, code, test.want, test.code)
		}
	}
}
