// SPDX-License-Identifier: Apache-2.0

package talosclusters

import (
	"testing"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/registry/reset/resettest"
)

func TestWhatStrategiesResetIsWhatTheyDeclare(t *testing.T) {
	t.Parallel()
	base := newStrategy(nil)
	adjust := func(obj, old *ichor.TalosCluster) {
		for i, c := range []*ichor.TalosCluster{obj, old} {
			c.Spec.Hardening.SecureBoot, c.Spec.Hardening.KubeletServingCertificates = i == 0, i == 0
			c.Spec.CNI.Cilium.Values = &ichor.JSONObject{Raw: []byte([]string{`{"a":1}`, `{"a":2}`}[i])}
			c.Spec.ControlPlane.Count = int32(3 + 2*i)
		}
	}
	for name, strategy := range map[string]resettest.Strategy{
		"main": base, "status": statusStrategy{base}, "finalize": finalizeStrategy{base},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resettest.Check(t, strategy, adjust)
		})
	}
}
