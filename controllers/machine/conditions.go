// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// Reasons of this controller's own, besides those of the API package.
const (
	reasonOtherConfiguration = "OtherConfiguration"
	reasonSlotMissing        = "SlotMissing"
	reasonEtcdUnhealthy      = "EtcdUnhealthy"
	reasonLeavingMaintenance = "LeavingMaintenance"
	reasonOwnConfiguration   = "OwnConfiguration"
	reasonHistoryNotKept     = "HistoryNotKept"
	reasonRemoving           = "Removing"
	reasonReset              = "Reset"
	reasonResetting          = "Resetting"
	reasonRunsOn             = "RunsOn"
	reasonNoSnapshot         = "NoSnapshot"
	reasonDraining           = "Draining"
	reasonDrained            = "Drained"
	reasonGivingUp           = "GivingUp"
	reasonGivenUp            = "GivenUp"
	reasonQuarantineFull     = "QuarantineFull"
	reasonClusterDeleted     = "ClusterDeleted"
	reasonLockedDown         = "LockedDown"
	reasonNotLockedDown      = "NotLockedDown"
)

func isTrue(m *v1alpha1.TalosMachine, kind string) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, kind)
}

// set writes a condition, with the same words for the same cause; its time moves only when its status does.
func set(m *v1alpha1.TalosMachine, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: talos.Steady(message), ObservedGeneration: m.Generation,
	})
}

func setTrue(m *v1alpha1.TalosMachine, kind, reason, message string) {
	set(m, kind, metav1.ConditionTrue, reason, message)
}

func setFalse(m *v1alpha1.TalosMachine, kind, reason, message string) {
	set(m, kind, metav1.ConditionFalse, reason, message)
}

func setUnknown(m *v1alpha1.TalosMachine, kind, reason, message string) {
	set(m, kind, metav1.ConditionUnknown, reason, message)
}

func find(m *v1alpha1.TalosMachine, kind string) *metav1.Condition {
	return meta.FindStatusCondition(m.Status.Conditions, kind)
}
