// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos/talostest"
)

// decideAnew changes what was decided about a machine, as the approval subresource does.
func (s *stack) decideAnew(name string, change func(*v1alpha1.TalosMachine)) {
	s.t.Helper()
	s.changeMachine(name, func(m *v1alpha1.TalosMachine) {
		change(m)
		m.Generation++
	})
}

func label(m *v1alpha1.TalosMachine) { m.Spec.NodeLabels = map[string]string{"rack": "seven"} }

// live lets a running machine take configurations without leaving its mode.
func (s *stack) live(name string) {
	s.machines[name].Do(func(state *talostest.State) { state.Live = true })
}

func TestANewDecisionReachesARunningMachine(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.live(machine)
	s.decideAnew(machine, label)
	m := s.mustReconcile(machine)
	if m.Status.Phase != v1alpha1.PhaseConfiguring {
		t.Errorf("phase is %s", m.Status.Phase)
	}
	s.settle(machine)
	applied := s.machines[machine].Snapshot().Applied
	if len(applied) != 2 || !bytes.Contains(applied[1], []byte("rack: seven")) {
		t.Fatalf("%d configurations, the last without the label", len(applied))
	}
	m = s.get(machine)
	wantCondition(t, m, v1alpha1.ConditionConfigApplied, metav1.ConditionTrue, v1alpha1.ReasonApplied)
	if m.Status.Config.AppliedHash != m.Status.Config.RunningHash || m.Status.Config.AppliedHash != m.Status.Config.RenderedHash {
		t.Errorf("hashes are %+v", m.Status.Config)
	}
	assertQuiet(t, s, machine)
}

func TestANewDecisionThatChangesNothingSendsNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.decideAnew(machine, func(m *v1alpha1.TalosMachine) { m.Spec.Locked = true })
	s.settle(machine)
	if got := s.applies(machine); got != 1 {
		t.Errorf("the machine got %d configurations", got)
	}
	assertQuiet(t, s, machine)
}

func TestANewDecisionThatCantBeCarriedOut(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change  func(*v1alpha1.TalosMachine)
		machine func(*talostest.State)
		reason  string
	}{
		"the machine refuses": {change: label, machine: func(s *talostest.State) { s.Fault = talostest.Refuse }, reason: v1alpha1.ReasonRefusedByMachine},
		"it is held": {change: func(m *v1alpha1.TalosMachine) {
			label(m)
			annotate(m, v1alpha1.HoldApplyAnnotation, "x")
		}, reason: v1alpha1.ReasonHeld},
		"it can't be rendered": {change: func(m *v1alpha1.TalosMachine) { m.Spec.NodeLabels = map[string]string{"a b": "c"} }, reason: v1alpha1.ReasonRenderFailed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			machine := s.add(11)
			s.settle(machine)
			s.live(machine)
			if tc.machine != nil {
				s.machines[machine].Do(tc.machine)
			}
			s.decideAnew(machine, tc.change)
			for range 3 {
				s.mustReconcile(machine)
			}
			m := s.get(machine)
			wantCondition(t, m, v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, tc.reason)
			if got := s.applies(machine); got != 1 {
				t.Errorf("the machine got %d configurations", got)
			}
			if !isTrue(m, v1alpha1.ConditionReady) {
				t.Errorf("it runs as before, but isn't Ready: %s", describeConditions(m))
			}
			assertQuiet(t, s, machine)
		})
	}
}

func TestAnAnswerThatIsLostWhileItIsConfiguredAnew(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.live(machine)
	s.machines[machine].Do(func(state *talostest.State) { state.Fault = talostest.LoseAnswer })
	s.decideAnew(machine, label)
	s.settle(machine)
	s.settle(machine)
	if got := s.applies(machine); got != 2 {
		t.Errorf("the machine got %d configurations, want 2", got)
	}
}

func TestControlPlanesAreConfiguredAnewOneAtATime(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	first, second := s.add(11, controlPlane), s.add(12, controlPlane)
	s.settle(first, second)
	for _, name := range []string{first, second} {
		s.live(name)
		s.decideAnew(name, label)
	}
	s.mustReconcile(first)
	wantCondition(t, s.mustReconcile(second), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonWaitingForTurn)
	s.settle(first, second)
	s.mustReconcile(second)
	s.settle(first, second)
	if s.applies(first) != 2 || s.applies(second) != 2 {
		t.Errorf("configurations: first %d, second %d; want 2 of each", s.applies(first), s.applies(second))
	}
}
