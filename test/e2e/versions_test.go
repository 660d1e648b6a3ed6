// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/localstack"
	"maesh.dev/ichor/test/localstack/state"
)

// The versions before and after the stack's own. 1.12 runs Kubernetes up to 1.35.
const (
	olderTalos, olderKubernetes = "v1.12.11", "v1.35.4"
	laterTalos                  = "v1.14.0"
)

// Places of the newcomers, which are the last machines of the fleet.
const (
	cpLater = iota
	workerLater
	cpOlder
	workerOlder
	workerFromOlder
	workerFromLater
	workerRefused
)

// newcomers are what they booted from, what they are to become, and what the cluster wants by then. The two control planes
// are the stack's second and third: more than three are too much for a small computer.
var newcomers = []struct {
	hostname          string
	role              v1alpha1.MachineRole
	media             string
	talos, kubernetes string
}{
	cpLater:         {"cp-2", v1alpha1.RoleControlPlane, laterTalos, laterTalos, localstack.KubernetesVersion},
	workerLater:     {"worker-2", v1alpha1.RoleWorker, laterTalos, laterTalos, localstack.KubernetesVersion},
	cpOlder:         {"cp-3", v1alpha1.RoleControlPlane, olderTalos, olderTalos, olderKubernetes},
	workerOlder:     {"worker-3", v1alpha1.RoleWorker, olderTalos, olderTalos, olderKubernetes},
	workerFromOlder: {"worker-from-older", v1alpha1.RoleWorker, olderTalos, localstack.TalosVersion, olderKubernetes},
	// It is given no newer kubelet than the older control plane's kube-apiserver, though the cluster is to have a newer one.
	workerFromLater: {"worker-from-later", v1alpha1.RoleWorker, laterTalos, localstack.TalosVersion, olderKubernetes},
	workerRefused:   {"worker-refused", v1alpha1.RoleWorker, olderTalos, localstack.TalosVersion, localstack.KubernetesVersion},
}

// mixedFleet writes the fleet of the stories: as many machines as they use up, the newcomers, and one of another cluster.
func mixedFleet(t *testing.T, dir string) string {
	t.Helper()
	made, err := fleet.Generate(fleet.GenerateOptions{
		Machines: machines + len(newcomers) + 1, First: netip.MustParseAddr("127.0.16.11"), TalosVersion: localstack.TalosVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, newcomer := range newcomers {
		made.Machines[machines+i].TalosVersion = newcomer.media
	}
	foreignMachine(&made.Machines[machines+len(newcomers)])
	data, err := made.Encode()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "mixed.yaml")
	if err := state.Write(file, data); err != nil {
		t.Fatal(err)
	}
	return file
}

// otherMedia joins machines that booted one version and get another, while the cluster's intent moves. Machines that are
// there already aren't touched by that. While a control plane is older than what the cluster wants, they get what it runs.
func otherMedia(t *testing.T, s *suite) {
	before := s.appliesOfAll(t)
	s.waitReady(t, 4*time.Minute, names(s.joinAll(t, []int{workerFromOlder}))...)
	s.expectVersion(t, workerFromOlder)
	s.intend(t, map[string]any{"talosVersion": localstack.TalosVersion, "kubernetesVersion": localstack.KubernetesVersion})
	s.waitReady(t, 4*time.Minute, s.join(t, workerFromLater))
	s.expectVersion(t, workerFromLater)
	after := s.appliesOfAll(t)
	for name, count := range before {
		if after[name] != count {
			t.Errorf("machine %s took a configuration because the cluster's intent moved", name)
		}
	}
}

// joinAll has the cluster want what is wanted for the newcomers, which is the same for all of them, and approves them.
func (s *suite) joinAll(t *testing.T, which []int) []*v1alpha1.TalosMachine {
	t.Helper()
	want := newcomers[which[0]]
	s.intend(t, map[string]any{"talosVersion": want.talos, "kubernetesVersion": want.kubernetes})
	var out []*v1alpha1.TalosMachine
	for _, n := range which {
		out = append(out, s.get(t, s.join(t, n)))
	}
	return out
}

// newcomer is the object of the nth newcomer.
func (s *suite) newcomer(t *testing.T, n int) *v1alpha1.TalosMachine {
	t.Helper()
	return s.at(t, s.stack.Fleet().Machines[machines+n].Addr())
}

// join approves the nth newcomer and returns its name.
func (s *suite) join(t *testing.T, n int) string {
	t.Helper()
	m := s.newcomer(t, n)
	if m.Status.TalosVersion != newcomers[n].media {
		t.Errorf("machine %s booted %s, its object says %q", m.Name, newcomers[n].media, m.Status.TalosVersion)
	}
	s.approve(t, s.operator, m.Name, newcomers[n].role, newcomers[n].hostname)
	return m.Name
}

// intend changes what the cluster wants, as an operator does.
func (s *suite) intend(t *testing.T, spec map[string]any) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.operator.IchorV1alpha1().TalosClusters().Patch(t.Context(), localstack.ClusterName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// expectVersion checks on all sides that a newcomer became what was wanted.
func (s *suite) expectVersion(t *testing.T, n int) {
	t.Helper()
	want := newcomers[n]
	m := s.newcomer(t, n)
	if running := s.console(t, m).Version; running != want.talos || m.Status.TalosVersion != want.talos {
		t.Errorf("machine %s (%s) runs %s, its object says %s; want %s", m.Name, want.hostname, running, m.Status.TalosVersion, want.talos)
	}
	if settled := m.Status.SettledVersions; settled == nil || settled.Talos != want.talos || settled.Kubernetes != want.kubernetes {
		t.Errorf("machine %s (%s) is settled on %+v, want %s and %s", m.Name, want.hostname, settled, want.talos, want.kubernetes)
	}
	s.expectNode(t, m, want.hostname)
	s.expectApprovedDisk(t, m)
	s.expectOneApply(t, m)
	found, err := s.kubernetes.CoreV1().Nodes().Get(t.Context(), want.hostname, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if info := found.Status.NodeInfo; info.KubeletVersion != want.kubernetes || !strings.Contains(info.OSImage, want.talos) {
		t.Errorf("node %s runs kubelet %s on %s, want %s and %s", want.hostname, info.KubeletVersion, info.OSImage, want.kubernetes, want.talos)
	}
}

// expectRefused approves a machine that booted a version which takes no configuration with the cluster's Kubernetes: that is
// said before anything is sent. It is held back from then on: it would take what an older control plane lets machines have.
func (s *suite) expectRefused(t *testing.T, n int) {
	t.Helper()
	name := s.joinAll(t, []int{n})[0].Name
	eventually(t, time.Minute, func() error {
		applied := condition(s.get(t, name).Status.Conditions, v1alpha1.ConditionConfigApplied)
		if applied.Reason != v1alpha1.ReasonRenderFailed || !strings.Contains(applied.Message, "the machine booted Talos "+newcomers[n].media) {
			return fmt.Errorf("condition %+v", applied)
		}
		return nil
	})
	if sent := s.applies(t, s.get(t, name)); len(sent) != 0 {
		t.Errorf("machine %s was sent %+v", name, sent)
	}
	s.annotate(t, s.operator, name, v1alpha1.HoldApplyAnnotation, "end-to-end test")
}

// appliesOfAll counts the configurations that every approved machine took.
func (s *suite) appliesOfAll(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	all := s.stack.Fleet().Machines
	for i := range all {
		if status := s.consoleOf(t, &all[i]); status.Applies > 0 {
			out[status.Name] = status.Applies
		}
	}
	return out
}
