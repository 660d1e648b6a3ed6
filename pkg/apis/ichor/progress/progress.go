// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Progress is where an object is on its way. The zero value is one that is as it was asked to be.
type Progress struct {
	// condition is the type of the condition that is True: Reconciling, Stalled, or none.
	condition       string
	reason, message string
}

// Types are the conditions that this package writes.
func Types() []string { return []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} }

// current is as it was asked to be.
func current() Progress { return Progress{} }

// reconciling is on its way, and needs nobody.
func reconciling(reason, message string) Progress {
	return Progress{v1alpha1.ConditionReconciling, reason, message}
}

// stalled stands still until somebody does something.
func stalled(reason, message string) Progress {
	return Progress{v1alpha1.ConditionStalled, reason, message}
}

// unobserved is on its way because nobody has looked at the spec as it is.
func unobserved() Progress {
	return reconciling(v1alpha1.ReasonNotObserved, "Ichor hasn't looked at the object as it is now")
}

// by is a progress that a condition of the kind's own explains.
func by(says func(reason, message string) Progress, condition *metav1.Condition, otherwise string) Progress {
	if condition == nil {
		return says(otherwise, "")
	}
	return says(cmp.Or(condition.Reason, otherwise), condition.Message)
}

// Record writes the progress into an object's conditions. What was there before keeps its time as long as it says the
// same; what a client wrote into these conditions counts for nothing.
func Record(conditions *[]metav1.Condition, was []metav1.Condition, generation int64, p Progress) {
	own := func(c metav1.Condition) bool { return slices.Contains(Types(), c.Type) }
	kept := slices.DeleteFunc(slices.Clone(*conditions), own)
	for _, condition := range was {
		if own(condition) && condition.Type == p.condition {
			kept = append(kept, condition)
		}
	}
	if p.condition != "" {
		meta.SetStatusCondition(&kept, metav1.Condition{
			Type: p.condition, Status: metav1.ConditionTrue, Reason: p.reason, Message: p.message, ObservedGeneration: generation,
		})
	}
	if len(kept) == 0 {
		kept = nil
	}
	*conditions = kept
}

func find(conditions []metav1.Condition, kind string) *metav1.Condition {
	return meta.FindStatusCondition(conditions, kind)
}

func is(conditions []metav1.Condition, kind string, status metav1.ConditionStatus) bool {
	return meta.IsStatusConditionPresentAndEqual(conditions, kind, status)
}
