// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// A machine that joins while Kubernetes is upgraded gets no kubelet that is newer than a kube-apiserver.
func TestWhichKubernetesAMachineThatJoinsGets(t *testing.T) {
	t.Parallel()
	const before, between, intent = "v1.35.4", "v1.35.9", "v1.36.4"
	all := func(version string) *v1alpha1.SettledVersions { return &v1alpha1.SettledVersions{Kubernetes: version} }
	for name, c := range map[string]struct {
		first, second *v1alpha1.SettledVersions
		operation     bool
		want          string
	}{
		"nothing is on its way":                    {all(before), all(intent), false, intent},
		"an operation, and all run the intent":     {all(intent), all(intent), true, intent},
		"an operation hasn't moved anything yet":   {all(before), all(before), true, before},
		"kube-apiservers were moved":               {&v1alpha1.SettledVersions{Kubernetes: before, KubeAPIServer: intent}, &v1alpha1.SettledVersions{Kubernetes: before, KubeAPIServer: intent}, true, before},
		"a kubelet was moved":                      {all(intent), &v1alpha1.SettledVersions{Kubernetes: between, KubeAPIServer: intent}, true, between},
		"an upgrade was cancelled half-way":        {all(before), &v1alpha1.SettledVersions{Kubernetes: before, KubeAPIServer: intent}, false, before},
		"the control planes are ahead of a wish":   {all("v1.37.0"), all("v1.37.0"), true, intent},
		"the first control plane is yet to come":   {nil, nil, true, intent},
		"one that isn't configured decides nought": {nil, all(before), true, before},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			for number, settled := range map[int]*v1alpha1.SettledVersions{11: c.first, 12: c.second} {
				s.add(number, func(m *v1alpha1.TalosMachine) {
					m.Spec.Role, m.Status.SettledVersions = v1alpha1.RoleControlPlane, settled
				})
			}
			s.changeCluster(func(cluster *v1alpha1.TalosCluster) {
				cluster.Spec.KubernetesVersion = intent
				if c.operation {
					cluster.Status.ActiveOperation = &v1alpha1.ActiveOperation{Name: "up", UID: "up", Since: metav1.Now()}
				}
			})
			machine := s.add(13)
			s.settle(machine)
			if got := s.get(machine).Status.SettledVersions; got == nil || got.Kubernetes != c.want {
				t.Errorf("it is to have %+v, want %s", got, c.want)
			}
		})
	}
}
