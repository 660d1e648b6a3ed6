// SPDX-License-Identifier: Apache-2.0

package machine

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
)

// checkHardened holds the kernel that the machine booted against what its cluster asks for. What a kernel locks down
// follows from its image, so for most machines a person has to change the schematic.
func (v *visit) checkHardened(facts *talos.Facts) {
	if v.cluster.Spec.Hardening.KernelLockdown == v1alpha1.KernelLockdownNone {
		meta.RemoveStatusCondition(&v.m.Status.Conditions, v1alpha1.ConditionHardened)
		return
	}
	if facts.Inventory == nil {
		return
	}
	versions := machineconfig.Settle(v.cluster, facts.SchematicID)
	if settled := v.m.Status.SettledVersions; settled != nil {
		versions = *settled
	}
	advice := machineconfig.LockdownAdvice(v.cluster, facts.Inventory, versions)
	if advice == "" {
		setTrue(v.m, v1alpha1.ConditionHardened, reasonLockedDown, "the kernel is locked down: "+string(facts.Inventory.KernelLockdown))
		return
	}
	if condition := find(v.m, v1alpha1.ConditionHardened); condition == nil || condition.Reason != reasonNotLockedDown {
		v.tell(corev1.EventTypeWarning, reasonNotLockedDown, "%s", advice)
	}
	setFalse(v.m, v1alpha1.ConditionHardened, reasonNotLockedDown, advice)
}
