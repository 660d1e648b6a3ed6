// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestTheKernelsLockdown(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		want   v1alpha1.KernelLockdown
		change func(*v1alpha1.TalosCluster, *Facts)
		// arguments are those in the configuration, fromImage whether GRUB takes them from the image.
		arguments []string
		fromImage bool
		advice    string
	}{
		"nothing is asked for": {fromImage: true},
		"booted by GRUB": {
			want: v1alpha1.KernelLockdownIntegrity, arguments: []string{"lockdown=integrity"},
			advice: "booted without lockdown; lockdown=integrity is in the machine's configuration and counts from the next installation or upgrade",
		},
		"booted by GRUB, and locked down": {
			want: v1alpha1.KernelLockdownIntegrity,
			change: func(_ *v1alpha1.TalosCluster, f *Facts) {
				f.Inventory.KernelLockdown = v1alpha1.KernelLockdownIntegrity
			},
			arguments: []string{"lockdown=integrity"},
		},
		"booted by GRUB, with a schematic that may have arguments": {
			want: v1alpha1.KernelLockdownIntegrity, change: func(_ *v1alpha1.TalosCluster, f *Facts) { f.Versions.SchematicID = strings.Repeat("ab", 32) },
			fromImage: true, advice: "add lockdown=integrity to customization.extraKernelArgs of the schematic (it has abababababab now)",
		},
		"a unified kernel image": {
			want: v1alpha1.KernelLockdownConfidentiality,
			change: func(_ *v1alpha1.TalosCluster, f *Facts) {
				f.Inventory.UnifiedKernelImage, f.Inventory.KernelLockdown = true, v1alpha1.KernelLockdownIntegrity
			},
			fromImage: true, advice: "booted with lockdown=integrity, and takes its arguments from the image: add lockdown=confidentiality",
		},
		"SecureBoot, which is stricter than was asked for": {
			want: v1alpha1.KernelLockdownIntegrity,
			change: func(_ *v1alpha1.TalosCluster, f *Facts) {
				f.Inventory.SecureBoot, f.Inventory.UnifiedKernelImage, f.Inventory.KernelLockdown = true, true, v1alpha1.KernelLockdownConfidentiality
			},
			fromImage: true,
		},
		"an image for SecureBoot that is yet to be installed": {
			want: v1alpha1.KernelLockdownIntegrity, change: func(c *v1alpha1.TalosCluster, _ *Facts) { c.Spec.Hardening.SecureBoot = true },
			fromImage: true, advice: "add lockdown=integrity",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, m := testCluster(), testMachine()
			cluster.Spec.Hardening.KernelLockdown = tc.want
			facts := testFacts(cluster)
			if tc.change != nil {
				tc.change(cluster, &facts)
			}
			text, err := Render(Inputs{Bundle: testBundle(t), Cluster: cluster, Machine: m, Facts: facts})
			if err != nil {
				t.Fatal(err)
			}
			provider, err := configloader.NewFromBytes(text)
			if err != nil {
				t.Fatal(err)
			}
			install := provider.Machine().Install()
			if diff := cmp.Diff(tc.arguments, install.ExtraKernelArgs()); diff != "" {
				t.Errorf("kernel arguments (-want +got):\n%s", diff)
			}
			if got := install.GrubUseUKICmdline(); got != tc.fromImage {
				t.Errorf("arguments are taken from the image: %v, want %v", got, tc.fromImage)
			}
			advice := LockdownAdvice(cluster, facts.Inventory, facts.Versions)
			if (advice == "") != (tc.advice == "") || !strings.Contains(advice, tc.advice) {
				t.Errorf("advice %q, want %q", advice, tc.advice)
			}
		})
	}
}

// The policy is the artifacts' own, reaches control planes only, and a patch replaces it.
func TestTheAuditPolicyOfTheAPIServer(t *testing.T) {
	t.Parallel()
	cluster, m := testCluster(), testMachine()
	rules := func(policy v1alpha1.AuditPolicy, role v1alpha1.MachineRole, patches ...*Patch) []any {
		t.Helper()
		cluster, m := cluster.DeepCopy(), m.DeepCopy()
		cluster.Spec.Hardening.AuditPolicy, m.Spec.Role, m.Spec.Hostname = policy, role, "h-1"
		text, err := Render(Inputs{Bundle: testBundle(t), Cluster: cluster, Machine: m, Facts: testFacts(cluster), Patches: patches})
		if err != nil {
			t.Fatal(err)
		}
		provider, err := configloader.NewFromBytes(text)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := provider.Cluster().APIServer().AuditPolicy()["rules"].([]any)
		return got
	}
	own, err := auditPolicy()
	if err != nil {
		t.Fatal(err)
	}
	want, _ := own.Object["rules"].([]any)
	if len(want) < 5 {
		t.Fatalf("the artifacts' policy has the rules %v", want)
	}
	if diff := cmp.Diff(want, rules(v1alpha1.AuditPolicyIchor, v1alpha1.RoleControlPlane)); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	talos := rules(v1alpha1.AuditPolicyTalos, v1alpha1.RoleControlPlane)
	if len(talos) != 1 {
		t.Errorf("Talos' own policy has the rules %v", talos)
	}
	if got := rules(v1alpha1.AuditPolicyIchor, v1alpha1.RoleWorker); slices.ContainsFunc(got, func(rule any) bool { return cmp.Equal(rule, want[1]) }) {
		t.Errorf("a worker has the policy of an API server: %v", got)
	}
	patch := &v1alpha1.TalosConfigPatch{}
	patch.Name, patch.Spec.Cluster = "audit", &v1alpha1.ClusterSection{Raw: []byte(`{"apiServer":{"auditPolicy":{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Request"}]}}}`)}
	compiled, err := Compile(patch, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{map[string]any{"level": "Request"}}, rules(v1alpha1.AuditPolicyIchor, v1alpha1.RoleControlPlane, compiled)); diff != "" {
		t.Errorf("rules with a patch (-want +got):\n%s", diff)
	}
}
