// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestWhatIsGivenToAComponentIsFoundWithThePatchAndPath(t *testing.T) {
	t.Parallel()
	cluster := testCluster()
	m := testMachine(func(m *v1alpha1.TalosMachine) {
		m.Spec.Role, m.Spec.Hostname, m.Spec.ClusterRef.Name = v1alpha1.RoleControlPlane, "cp-1", cluster.Name
		facts := testFacts(cluster)
		m.Status.TalosVersion, m.Status.Inventory, m.Status.SettledVersions = facts.MaintenanceVersion, facts.Inventory, &facts.Versions
	})
	patch := testPatch(t, "tuning", `
cluster:
  apiServer:
    extraArgs:
      feature-gates: A=true,B=false
      enable-admission-plugins: JobValidation
  scheduler:
    extraArgs: {v: "4"}
machine:
  kubelet:
    extraConfig:
      featureGates: {C: true}
`)
	settings, err := ComponentSettings(cluster, m, []*v1alpha1.TalosConfigPatch{patch}, func(ComponentSetting) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range settings {
		got[s.Component+" "+s.Name()] = s.Where
	}
	for what, where := range map[string]string{
		"kube-apiserver feature-gates": "TalosConfigPatch tuning, cluster.apiServer.extraArgs.feature-gates",
		"kube-apiserver A":             "TalosConfigPatch tuning, cluster.apiServer.extraArgs.feature-gates",
		"kube-apiserver B":             "TalosConfigPatch tuning, cluster.apiServer.extraArgs.feature-gates",
		"kube-apiserver JobValidation": "TalosConfigPatch tuning, cluster.apiServer.extraArgs.enable-admission-plugins",
		"kube-apiserver PodSecurity":   "cluster.apiServer.admissionControl[0].name",
		"kube-scheduler v":             "TalosConfigPatch tuning, cluster.scheduler.extraArgs.v",
		"kubelet C":                    "TalosConfigPatch tuning, machine.kubelet.extraConfig.featureGates.C",
	} {
		if diff := cmp.Diff(where, got[what]); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	if none, err := ComponentSettings(cluster, m, nil, func(s ComponentSetting) bool { return s.Gate != "" }); err != nil || len(none) != 0 {
		t.Errorf("without the patch: %v, %v", none, err)
	}
}
