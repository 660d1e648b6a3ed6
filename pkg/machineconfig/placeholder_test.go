// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"bytes"
	"strings"
	"testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// A field may want a key of a certain length, or an address: what stands for the value of a Secret is no fault of the patch,
// and hides no fault of another one.
func TestWhatStandsForASecretIsNotJudged(t *testing.T) {
	t.Parallel()
	tunnel := testPatch(t, "a-tunnel", `{documents: [{apiVersion: v1alpha1, kind: WireguardConfig, name: wg0}], secretValues: [{path: /documents/WireguardConfig/wg0/privateKey, secretKeyRef: {name: wg, key: key}}]}`)
	tuning := testPatch(t, "b-tuning", `{machine: {sysctls: {vm.swappiness: "1"}}}`)
	wrong := testPatch(t, "c-wrong", `{documents: [{apiVersion: v1alpha1, kind: UserVolumeConfig, name: data}]}`)
	cases := map[string]struct {
		patches []*v1alpha1.TalosConfigPatch
		warning string
		fault   string
	}{
		"alone":                 {[]*v1alpha1.TalosConfigPatch{tunnel}, "patch a-tunnel depends on the values of its Secrets", ""},
		"beside a good one":     {[]*v1alpha1.TalosConfigPatch{tunnel, tuning}, "patch a-tunnel", ""},
		"beside a faulty one":   {[]*v1alpha1.TalosConfigPatch{tunnel, tuning, wrong}, "", "patch c-wrong"},
		"only a faulty one":     {[]*v1alpha1.TalosConfigPatch{wrong}, "", "patch c-wrong"},
		"no Secret, no warning": {[]*v1alpha1.TalosConfigPatch{tuning}, "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := testMachine(func(m *v1alpha1.TalosMachine) { m.Spec.ClusterRef.Name = "prod" })
			m.Status.Inventory = testFacts(testCluster()).Inventory
			view, err := Preview(testCluster(), m, c.patches, false)
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) {
					t.Errorf("got %v, want the fault of %s", err, c.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(view.Warnings, "\n"); (got == "") != (c.warning == "") || !strings.Contains(got, c.warning) {
				t.Errorf("the warnings are %q, want %q", got, c.warning)
			}
			if bytes.Contains(view.Text, []byte(SecretPlaceholder)) {
				t.Error("the placeholder is shown")
			}
		})
	}
}
