// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/kube"
)

// runAPIServer shows a kube-apiserver's static pod on a Node.
func (s *stack) runAPIServer(node, version string) {
	s.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "kube-apiserver-" + node, Namespace: kube.SystemNamespace,
		Labels: map[string]string{kube.ComponentLabel: "kube-apiserver"}, Annotations: map[string]string{kube.ConfigVersionAnnotation: "1"},
	}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Image: "registry.k8s.io/kube-apiserver:" + version}}}}
	if _, err := s.kube.CoreV1().Pods(kube.SystemNamespace).Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// While an upgrade of Kubernetes is on its way, or before it began, or when it was given up, kube-apiservers are older than what
// the cluster is to have. Kubernetes supports no kubelet that is newer than one of them.
func TestAMachineThatJoinsIsGivenNothingNewerThanAKubeAPIServer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		see  func(*stack)
		want string
	}{
		"every kube-apiserver runs the cluster's version": {func(s *stack) {
			s.runAPIServer("cp-1", "v1.36.6")
			s.runAPIServer("cp-2", "v1.36.6")
		}, "v1.36.6"},
		"one is older": {func(s *stack) {
			s.runAPIServer("cp-1", "v1.36.6")
			s.runAPIServer("cp-2", "v1.35.4")
		}, "v1.35.4"},
		"one that isn't seen to run may come back older": {func(s *stack) {
			s.runAPIServer("cp-1", "v1.36.6")
			s.add(12, controlPlane, func(m *v1alpha1.TalosMachine) {
				m.Status.SettledVersions = &v1alpha1.SettledVersions{Kubernetes: "v1.35.4", KubeAPIServer: "v1.36.6"}
			})
		}, "v1.35.4"},
		"one is to be newer but isn't yet": {func(s *stack) {
			s.runAPIServer("cp-1", "v1.35.4")
			s.add(12, controlPlane, func(m *v1alpha1.TalosMachine) {
				m.Status.NodeName = "cp-1"
				m.Status.SettledVersions = &v1alpha1.SettledVersions{Kubernetes: "v1.35.4", KubeAPIServer: "v1.36.6"}
			})
		}, "v1.35.4"},
		"it runs the newer one already": {func(s *stack) {
			s.runAPIServer("cp-1", "v1.36.6")
			s.add(12, controlPlane, func(m *v1alpha1.TalosMachine) {
				m.Status.NodeName = "cp-1"
				m.Status.SettledVersions = &v1alpha1.SettledVersions{Kubernetes: "v1.35.4", KubeAPIServer: "v1.36.6"}
			})
		}, "v1.36.6"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			test.see(s)
			machine := s.add(11)
			s.settle(machine)
			applied := s.machines[machine].Snapshot().Applied
			if len(applied) != 1 || !bytes.Contains(applied[0], []byte("kubelet:"+test.want)) {
				t.Errorf("%d configurations, the first without kubelet %s: %s", len(applied), test.want, describeConditions(s.get(machine)))
			}
			m := s.get(machine)
			if m.Status.SettledVersions == nil || m.Status.SettledVersions.Kubernetes != test.want {
				t.Errorf("settled on %+v, want %s", m.Status.SettledVersions, test.want)
			}
			if told := s.heard(reasonOlderKubernetes); told != (test.want != "v1.36.6") {
				t.Errorf("that it is another version than the cluster's was told: %t", told)
			}
		})
	}
}

// Not to know which versions run is no reason to send one; nor is a cluster that is to have what its kube-apiservers outgrew.
func TestNothingIsSentWhereNoVersionOfKubernetesIsKnownToFit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		see  func(*stack)
		want string
	}{
		"the API doesn't answer": {func(s *stack) {
			s.kube.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("etcd is away")
			})
		}, "list the static pods of kube-apiserver: etcd is away"},
		"what runs isn't known": {func(s *stack) { s.runAPIServer("cp-1", "latest") }, "which kube-apiserver runs on cp-1 isn't known"},
		"the kubelet would be too old": {func(s *stack) {
			s.runAPIServer("cp-1", "v1.36.6")
			s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.KubernetesVersion = "v1.32.1" })
		}, "raise spec.kubernetesVersion"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			test.see(s)
			machine := s.add(11)
			s.mustReconcile(machine)
			m := s.get(machine)
			applied := find(m, v1alpha1.ConditionConfigApplied)
			if s.applies(machine) != 0 || m.Status.SettledVersions != nil || applied == nil || !strings.Contains(applied.Message, test.want) {
				t.Errorf("%d configurations, settled on %+v: %s", s.applies(machine), m.Status.SettledVersions, describeConditions(m))
			}
		})
	}
}

// heard tells whether an event of a reason was sent.
func (s *stack) heard(reason string) bool {
	s.t.Helper()
	for {
		select {
		case event := <-s.events.Events:
			if strings.Contains(event, " "+reason+" ") {
				return true
			}
		default:
			return false
		}
	}
}
