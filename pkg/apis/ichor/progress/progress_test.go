// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRecord(t *testing.T) {
	t.Parallel()
	then := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	condition := func(kind, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: "m", ObservedGeneration: 1, LastTransitionTime: then}
	}
	ready := condition("Ready", "Ready")
	for name, tc := range map[string]struct {
		has, was, want []metav1.Condition
		progress       Progress
		fresh          bool
	}{
		"what is as it should be has neither condition": {
			has: []metav1.Condition{ready}, was: []metav1.Condition{ready, condition("Reconciling", "A")}, want: []metav1.Condition{ready},
		},
		"no conditions stay none":         {},
		"what a client writes is no word": {has: []metav1.Condition{condition("Stalled", "Forged"), ready}, want: []metav1.Condition{ready}},
		"the same again keeps its time, though the client left it out": {
			has: []metav1.Condition{ready}, was: []metav1.Condition{ready, condition("Reconciling", "A")},
			want: []metav1.Condition{ready, condition("Reconciling", "A")}, progress: reconciling("A", "m"),
		},
		"another reason of the same keeps its time": {
			was: []metav1.Condition{condition("Reconciling", "A")}, want: []metav1.Condition{condition("Reconciling", "B")}, progress: reconciling("B", "m"),
		},
		"one gives way to the other": {
			was: []metav1.Condition{condition("Reconciling", "A")}, want: []metav1.Condition{condition("Stalled", "B")}, progress: stalled("B", "m"), fresh: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tc.has
			Record(&got, tc.was, 1, tc.progress)
			if tc.fresh {
				if !got[0].LastTransitionTime.After(then.Time) {
					t.Errorf("the time is %s, as if nothing had changed", got[0].LastTransitionTime)
				}
				got[0].LastTransitionTime = then
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
