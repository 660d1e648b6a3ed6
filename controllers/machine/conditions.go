// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Reasons of this controller's own, besides those of the API package.
const (
	reasonOtherConfiguration = "OtherConfiguration"
	reasonSlotMissing        = "SlotMissing"
	reasonEtcdUnhealthy      = "EtcdUnhealthy"
	reasonLeavingMaintenance = "LeavingMaintenance"
	reasonRemoving           = "Removing"
	reasonReset              = "Reset"
	reasonResetting          = "Resetting"
)

// maxMessage bounds what a peer's words take up in a condition.
const maxMessage = 1024

func isTrue(m *v1alpha1.TalosMachine, kind string) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, kind)
}

// set writes a condition; its time moves only when its status does.
func set(m *v1alpha1.TalosMachine, kind string, status metav1.ConditionStatus, reason, message string) {
	if len(message) > maxMessage {
		message = message[:maxMessage] + "…"
	}
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: m.Generation,
	})
}

func setTrue(m *v1alpha1.TalosMachine, kind, reason, message string) {
	set(m, kind, metav1.ConditionTrue, reason, message)
}

func setFalse(m *v1alpha1.TalosMachine, kind, reason, message string) {
	set(m, kind, metav1.ConditionFalse, reason, message)
}

func find(m *v1alpha1.TalosMachine, kind string) *metav1.Condition {
	return meta.FindStatusCondition(m.Status.Conditions, kind)
}
