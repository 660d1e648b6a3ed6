// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos/talostest"
)

// A machine that an operation powered off is said to be, wherever a person looks; it alerts nobody, and when it answers again
// it is as any other.
func TestAMachineThatIsOffOnPurpose(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(197) // no other test has this one, whose metric is looked at
	s.settle(machine)
	const words = "powered off by operation night, which told it at 2026-03-01T22:00:00Z"
	s.machines[machine].Do(func(state *talostest.State) { state.Mode = talostest.Off })
	wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonUnreachable)
	if !isSeen(t, machine) {
		t.Error("when the machine was last seen isn't told")
	}
	s.changeMachine(machine, func(m *v1alpha1.TalosMachine) {
		setTrue(m, v1alpha1.ConditionPoweredOff, v1alpha1.ReasonPoweredOff, words)
	})
	m := s.mustReconcile(machine)
	wantCondition(t, m, v1alpha1.ConditionReachable, metav1.ConditionFalse, v1alpha1.ReasonPoweredOff, words)
	wantCondition(t, m, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPoweredOff, words)
	if isSeen(t, machine) {
		t.Error("a machine that is off on purpose has a time at which it was last seen, so that an alert fires")
	}
	assertQuiet(t, s, machine)
	s.machines[machine].Do(func(state *talostest.State) { state.Mode = talostest.Configured })
	s.settle(machine)
	m = s.get(machine)
	wantCondition(t, m, v1alpha1.ConditionReachable, metav1.ConditionTrue, v1alpha1.ReasonAnswers)
	if off := find(m, v1alpha1.ConditionPoweredOff); off != nil {
		t.Errorf("the machine answers, and says %+v", off)
	}
	if !isSeen(t, machine) {
		t.Error("when the machine was last seen isn't told any more")
	}
}

// isSeen tells whether it is a metric when a machine was last seen.
func isSeen(t *testing.T, machine string) bool {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if !strings.HasSuffix(family.GetName(), "machine_last_seen_timestamp_seconds") {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetValue() == machine {
					return true
				}
			}
		}
	}
	return false
}
