// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
)

// holdsRevisions checks which revisions a machine has: each with the patches that it is made of, as NAME@GENERATION.
func (s *stack) holdsRevisions(name string, want ...string) {
	s.t.Helper()
	var got []string
	for _, revision := range s.histories[name] {
		var patches []string
		for _, patch := range revision.Inputs.Patches {
			patches = append(patches, patch.Name+"@"+string(rune('0'+patch.Generation)))
		}
		got = append(got, strings.Join(patches, " "))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("revisions (-want +got):\n%s", diff)
	}
}

func TestEachRenderedConfigurationIsKeptOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.holdsRevisions(machine, "")
	first := s.histories[machine][0]
	if m := s.get(machine); first.Hash != m.Status.Config.RenderedHash || first.Inputs.Cluster.Name != "prod" || first.Inputs.Cluster.UID != clusterUID ||
		first.Inputs.Versions != *m.Status.SettledVersions || !first.Inputs.ApprovedAt.Equal(m.Spec.Approval.At) {
		t.Errorf("the first revision is %+v", first)
	}
	if !strings.Contains(first.Text, "hostname: node-11") || first.TextOmitted != "" {
		t.Errorf("its text is %s (%s)", first.Text, first.TextOmitted)
	}
	s.live(machine)
	s.patch("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)
	s.settle(machine)
	s.settle(machine)
	s.holdsRevisions(machine, "", "tuning@1")
	// What changes nothing that is rendered is no revision.
	s.decideAnew(machine, func(m *v1alpha1.TalosMachine) { m.Spec.Locked = true })
	s.settle(machine)
	s.holdsRevisions(machine, "", "tuning@1")
	assertQuiet(t, s, machine)
	s.holdsRevisions(machine, "", "tuning@1")
}

func TestNoSecretIsInTheHistory(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11, controlPlane)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "proxy", Namespace: v1alpha1.SystemNamespace, Labels: map[string]string{v1alpha1.PatchValuesLabel: "true"}},
		Data:       map[string][]byte{"password": []byte("hunter2-hunter2")},
	}
	if _, err := s.kube.CoreV1().Secrets(v1alpha1.SystemNamespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.patch("proxy", `{"env":{"A":"b"}}`, func(p *v1alpha1.TalosConfigPatch) {
		p.Spec.SecretValues = []v1alpha1.SecretValue{{Path: "/machine/env/PASSWORD", SecretKeyRef: v1alpha1.SecretKeyReference{Name: "proxy", Key: "password"}}}
	})
	s.settle(machine)
	if got := len(s.histories[machine]); got != 1 {
		t.Fatalf("%d revisions", got)
	}
	if !strings.Contains(s.runs(machine), "hunter2-hunter2") {
		t.Fatal("the machine wasn't given the password")
	}
	written, err := json.Marshal(s.histories[machine])
	if err != nil {
		t.Fatal(err)
	}
	secrets := s.bundle.Talos()
	for what, value := range map[string]string{
		"a value from a Secret": "hunter2-hunter2", "the machines' token": secrets.TrustdInfo.Token, "the cluster's secret": secrets.Cluster.Secret,
		"the bootstrap token": secrets.Secrets.BootstrapToken, "the key of encryption": secrets.Secrets.SecretboxEncryptionSecret,
		"Talos' CA key": string(secrets.Certs.OS.Key), "etcd's CA key": string(secrets.Certs.Etcd.Key), "Kubernetes' CA key": string(secrets.Certs.K8s.Key),
	} {
		if value == "" || strings.Contains(string(written), value) {
			t.Errorf("%s is in the history, or isn't known", what)
		}
	}
	for _, key := range []string{"LS0tLS1CRUdJTiBFRDI1NTE5IFBSSVZBVEU", "PRIVATE KEY", "LS0tLS1CRUdJTiBFQyBQUklWQVRF"} {
		if strings.Contains(string(written), key) {
			t.Errorf("a private key (%s) is in the history", key)
		}
	}
}

// Killed before a revision is kept, after it, and at every other moment, the machine ends with each once.
func TestAKilledControllerKeepsEachRevisionOnce(t *testing.T) {
	t.Parallel()
	for moment := 1; moment <= 8; moment++ {
		t.Run(fmt.Sprint(moment), func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			machine := s.add(11)
			s.start(moment)
			s.settle(machine)
			s.start(0)
			s.settle(machine)
			s.holdsRevisions(machine, "")
			s.live(machine)
			s.start(moment)
			s.patch("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)
			for range 10 {
				_, _ = s.reconcile(machine)
			}
			s.process.kill()
			s.start(0)
			s.mustReconcile(machine)
			s.settle(machine)
			s.holdsRevisions(machine, "", "tuning@1")
		})
	}
}

func TestAHistoryThatCantBeKept(t *testing.T) {
	t.Parallel()
	resource := v1alpha1.Resource("talosmachines")
	for name, tc := range map[string]struct {
		answer error
		waits  bool
	}{
		"an older server":      {answer: apierrors.NewNotFound(resource, "history")},
		"missing rights":       {answer: apierrors.NewForbidden(resource, "x", nil)},
		"it can't be read":     {answer: apierrors.NewInternalError(errors.New("no such key"))},
		"a text that's large":  {answer: apierrors.NewRequestEntityTooLargeError("too large")},
		"the server is busy":   {answer: apierrors.NewServiceUnavailable("etcd is busy"), waits: true},
		"the machine moved on": {answer: apierrors.NewConflict(resource, "x", nil), waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			machine := s.add(11)
			s.api.PrependReactor("create", "talosmachines", func(action clienttesting.Action) (bool, runtime.Object, error) {
				return action.GetSubresource() == "history", nil, tc.answer
			})
			if tc.waits {
				for range 3 {
					if _, err := s.reconcile(machine); err == nil {
						t.Fatal("it goes on")
					}
				}
				if got := s.applies(machine); got != 0 {
					t.Errorf("the machine got %d configurations before they were kept", got)
				}
				s.start(0)
				s.settle(machine)
				s.holdsRevisions(machine, "")
				return
			}
			s.settle(machine)
			if got := s.applies(machine); got != 1 {
				t.Errorf("the machine got %d configurations", got)
			}
			if told := strings.Join(s.drained(), "\n"); strings.Count(told, reasonHistoryNotKept) != 1 || !strings.Contains(told, corev1.EventTypeWarning) {
				t.Errorf("events are\n%s", told)
			}
		})
	}
}

func TestATextThatIsTooLargeIsLeftOut(t *testing.T) {
	t.Parallel()
	v := &visit{m: &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, cluster: &v1alpha1.TalosCluster{}}
	text := "version: v1alpha1\nmachine:\n    env:\n        A: " + strings.Repeat("long", v1alpha1.MaxRevisionText/4) + "\n"
	revision, err := v.revision(&rendering{text: []byte(text), hash: machineconfig.Hash([]byte(text))}, v1alpha1.SettledVersions{})
	if err != nil || revision.Text != "" || !strings.Contains(revision.TextOmitted, "bytes") || len(revision.TextOmitted) > v1alpha1.MaxTextOmitted {
		t.Errorf("%d bytes, %q, %v", len(revision.Text), revision.TextOmitted, err)
	}
}
