// SPDX-License-Identifier: Apache-2.0

// Package overview reads objects for a person: what a machine waits for and since when, what is up to the person, what is
// under way, and what to type next. It is pure. The words about a state are the server's own (the conditions' messages);
// only the advice is added here.
package overview

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Waiting is what keeps a machine where it is.
type Waiting struct {
	// What in words, from the condition's message.
	What string
	// Since when; zero if it isn't known.
	Since time.Time
	// Condition and Reason for programs.
	Condition, Reason string
}

// milestones are the conditions of a machine in the order in which they come true.
var milestones = []string{
	v1alpha1.ConditionFingerprintTrusted, v1alpha1.ConditionConfigApplied, v1alpha1.ConditionInstalled,
	v1alpha1.ConditionJoined, v1alpha1.ConditionReady,
}

// WaitsFor finds the first thing that isn't as it should be. For a pending machine that is its identity, for others the
// next milestone on the way to Ready. It is false for a machine that waits for nothing.
func WaitsFor(machine *v1alpha1.TalosMachine) (Waiting, bool) {
	if doubt := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionIdentityResolved); doubt != nil && doubt.Status == metav1.ConditionFalse {
		return waitingFor(doubt), true
	}
	if machine.Spec.ApprovalState != v1alpha1.ApprovalApproved {
		return Waiting{}, false
	}
	for _, milestone := range milestones {
		condition := meta.FindStatusCondition(machine.Status.Conditions, milestone)
		if condition == nil || condition.Status == metav1.ConditionTrue || condition.Reason == v1alpha1.ReasonWaitingForApproval {
			continue // the last is from before the approval, and the controller hasn't looked since
		}
		return waitingFor(condition), true
	}
	return Waiting{}, false
}

func waitingFor(condition *metav1.Condition) Waiting {
	waiting := Waiting{
		What: condition.Message, Since: condition.LastTransitionTime.Time,
		Condition: condition.Type, Reason: condition.Reason,
	}
	if waiting.What == "" {
		waiting.What = condition.Reason
	}
	return waiting
}

// IsReady is true for a machine that got where it should be.
func IsReady(machine *v1alpha1.TalosMachine) bool {
	return meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionReady)
}
