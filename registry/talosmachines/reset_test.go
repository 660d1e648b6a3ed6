// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"testing"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/registry/reset/resettest"
)

func TestWhatStrategiesResetIsWhatTheyDeclare(t *testing.T) {
	t.Parallel()
	base := newStrategy(nil)
	adjust := func(obj, old *ichor.TalosMachine) {
		for i, m := range []*ichor.TalosMachine{obj, old} {
			m.Spec.ClusterRef.Name = []string{"a", "b"}[i] // an empty one means the one that is there
			m.Spec.Identity = identityOf(i)
			m.Spec.Network.Interface.MAC = macOf(i)
			m.Spec.Locked, m.Status.Config.PendingReboot, m.Status.Inventory.SecureBoot = i == 0, i == 0, i == 0
		}
		obj.Spec.ApprovalState = ichor.ApprovalApproved
		obj.Spec.Origin, old.Spec.Origin = ichor.MachineDiscovered, ichor.MachineAdopted
		old.Spec.ApprovalState = ichor.ApprovalPending
		obj.Spec.IdentityResolution.Decision = ichor.IdentityDistinct
		obj.Spec.DeletionPolicy = ichor.DeletionReset
	}
	for name, strategy := range map[string]resettest.Strategy{
		"main": base, "status": statusStrategy{base}, "identity": identityStrategy{base}, "finalize": finalizeStrategy{base},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resettest.Check(t, strategy, adjust)
		})
	}
	// The identity in an approval is compared with the machine's and never taken, nor reset.
	t.Run("approval", func(t *testing.T) {
		t.Parallel()
		resettest.Check(t, approvalStrategy{base}, func(obj, old *ichor.TalosMachine) {
			adjust(obj, old)
			old.Spec.Origin = ichor.MachineDiscovered
			obj.Spec.Origin = ichor.MachineAdopted
		}, "spec.identity")
	})
}
