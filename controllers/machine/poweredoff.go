// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// offOnPurpose is the condition of a machine that an operation powered off and that hasn't answered since; nil for any other.
// The operation writes it, and the first answer takes it away.
func offOnPurpose(m *v1alpha1.TalosMachine) *metav1.Condition {
	if off := find(m, v1alpha1.ConditionPoweredOff); off != nil && off.Status == metav1.ConditionTrue {
		return off
	}
	return nil
}

// silentOnPurpose says of a machine that doesn't answer that this is as it was meant, if it is. When it was last seen isn't
// told any more: an alert is for machines that should answer.
func (v *visit) silentOnPurpose() bool {
	off := offOnPurpose(v.m)
	if off == nil {
		return false
	}
	lastSeen.DeleteLabelValues(v.m.Name)
	setFalse(v.m, v1alpha1.ConditionReachable, v1alpha1.ReasonPoweredOff, off.Message)
	return true
}

// backOn takes away that a machine is powered off.
func (v *visit) backOn() {
	meta.RemoveStatusCondition(&v.m.Status.Conditions, v1alpha1.ConditionPoweredOff)
}
