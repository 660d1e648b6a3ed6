// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestComponentsHaveTheVersionsThatWereSettledForThem(t *testing.T) {
	t.Parallel()
	cluster := testCluster()
	for name, c := range map[string]struct {
		settle func(*v1alpha1.SettledVersions)
		want   map[string]string
	}{
		"all the same": {
			func(v *v1alpha1.SettledVersions) { v.Kubernetes = "v1.36.4" },
			map[string]string{"kubelet": "v1.36.4", "apiserver": "v1.36.4", "manager": "v1.36.4", "scheduler": "v1.36.4"},
		},
		"kube-apiserver alone is upgraded": {
			func(v *v1alpha1.SettledVersions) { v.Kubernetes, v.KubeAPIServer = "v1.36.4", "v1.36.6" },
			map[string]string{"kubelet": "v1.36.4", "apiserver": "v1.36.6", "manager": "v1.36.4", "scheduler": "v1.36.4"},
		},
		"only the kubelet is left": {
			func(v *v1alpha1.SettledVersions) {
				v.Kubernetes, v.KubeAPIServer, v.KubeControllerManager, v.KubeScheduler = "v1.36.4", "v1.36.6", "v1.36.6", "v1.36.6"
			},
			map[string]string{"kubelet": "v1.36.4", "apiserver": "v1.36.6", "manager": "v1.36.6", "scheduler": "v1.36.6"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := testFacts(cluster)
			c.settle(&facts.Versions)
			text, err := Render(Inputs{
				Bundle: testBundle(t), Cluster: cluster, Facts: facts,
				Machine: testMachine(func(m *v1alpha1.TalosMachine) { m.Spec.Role, m.Spec.Hostname = v1alpha1.RoleControlPlane, "cp-1" }),
			})
			if err != nil {
				t.Fatal(err)
			}
			provider, err := configloader.NewFromBytes(text)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for what, image := range map[string]string{
				"kubelet": provider.Machine().Kubelet().Image(), "apiserver": provider.Cluster().APIServer().Image(),
				"manager": provider.Cluster().ControllerManager().Image(), "scheduler": provider.Cluster().Scheduler().Image(),
			} {
				got[what] = image[len(image)-len("v1.36.4"):]
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAVersionOfAnyComponentThatTalosDoesntRunIsRefused(t *testing.T) {
	t.Parallel()
	cluster := testCluster()
	facts := testFacts(cluster)
	facts.MaintenanceVersion, facts.Versions.Talos, facts.Versions.Kubernetes, facts.Versions.KubeScheduler = "v1.13.9", "v1.13.9", "v1.36.4", "v1.37.1"
	if _, err := Render(Inputs{Bundle: testBundle(t), Cluster: cluster, Machine: testMachine(), Facts: facts}); err == nil {
		t.Error("a scheduler of a version that the machine's Talos doesn't run was rendered")
	}
}
