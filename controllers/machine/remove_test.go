// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

func deleting(m *v1alpha1.TalosMachine) {
	now := metav1.Now()
	m.DeletionTimestamp = &now
}

// let tells whether the finalizer was taken off.
func (s *stack) let(name string) bool {
	return !slices.Contains(s.get(name).Finalizers, v1alpha1.MachineFinalizer)
}

func TestRemovalWithoutTouchingTheMachine(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.TalosMachine){
		"nobody approved it":          func(m *v1alpha1.TalosMachine) { m.Spec.ApprovalState = v1alpha1.ApprovalPending },
		"it was rejected":             func(m *v1alpha1.TalosMachine) { m.Spec.ApprovalState = v1alpha1.ApprovalRejected },
		"nothing was ever sent to it": func(*v1alpha1.TalosMachine) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			machine := s.add(11, change, deleting)
			s.mustReconcile(machine)
			if !s.let(machine) {
				t.Errorf("the finalizer is still there: %s", describeConditions(s.get(machine)))
			}
		})
	}
	t.Run("it is to be left as it is", func(t *testing.T) {
		t.Parallel()
		s := newStack(t)
		machine := s.add(11)
		s.settle(machine)
		s.changeMachine(machine, func(m *v1alpha1.TalosMachine) { m.Spec.DeletionPolicy = v1alpha1.DeletionOrphan })
		s.changeMachine(machine, deleting)
		s.mustReconcile(machine)
		if !s.let(machine) || s.machines[machine].Snapshot().Resets != 0 {
			t.Errorf("finalizer gone: %v, resets: %d", s.let(machine), s.machines[machine].Snapshot().Resets)
		}
	})
}

func TestAWorkerIsWipedAndItsNodeDeleted(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.changeMachine(machine, deleting)
	m := s.mustReconcile(machine)
	if m.Status.Phase != v1alpha1.PhaseRemoving || s.let(machine) {
		t.Fatalf("phase %s, let go: %v", m.Status.Phase, s.let(machine))
	}
	s.mustReconcile(machine)
	if got := s.machines[machine].Snapshot().Resets; got != 1 || !s.let(machine) {
		t.Errorf("resets: %d, finalizer gone: %v; %s", got, s.let(machine), describeConditions(s.get(machine)))
	}
	nodes, err := s.kube.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 0 {
		t.Errorf("Nodes left: %d (%v)", len(nodes.Items), err)
	}
}

func TestAMachineThatDoesntAnswerIsNotGivenUpSilently(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.machines[machine].Do(func(state *talostest.State) { state.Mode = talostest.Off })
	s.changeMachine(machine, deleting)
	m := s.mustReconcile(machine)
	wantCondition(t, m, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonUnreachable, "Orphan")
	if s.let(machine) {
		t.Error("it was given up")
	}
}

func TestAMachineThatWasWipedAndComesBackElsewhere(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.changeMachine(machine, deleting)
	s.mustReconcile(machine)
	s.world.Put("10.0.0.11", nil)
	s.mustReconcile(machine)
	if s.let(machine) {
		t.Fatal("let go at once")
	}
	s.clock.Step(resetSilence + time.Minute)
	s.mustReconcile(machine)
	if !s.let(machine) {
		t.Errorf("still held: %s", describeConditions(s.get(machine)))
	}
}

// backInMaintenance puts a machine that was sent a configuration into maintenance mode.
func backInMaintenance(fingerprint talos.Fingerprint) func(*talostest.State) {
	return func(state *talostest.State) {
		state.Mode, state.Fingerprint = talostest.Maintenance, fingerprint
		state.Facts.Stage = talos.MachineStage{Stage: v1alpha1.StageMaintenance, Ready: true}
	}
}

func TestAMachineThatIsAboutToInstallIsNotLetGo(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]talostest.Fault{"it took its configuration": talostest.NoFault, "the answer was lost": talostest.LoseAnswer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			machine := s.add(11)
			s.machines[machine].Do(func(state *talostest.State) { state.Fault = fault })
			s.mustReconcile(machine)
			s.machines[machine].Do(backInMaintenance("fp-11-1"))
			s.changeMachine(machine, deleting)
			for range 3 {
				s.mustReconcile(machine)
				s.clock.Step(applyWindow)
			}
			if s.let(machine) {
				t.Fatal("it was let go between its configuration and its installation")
			}
			wantCondition(t, s.get(machine), v1alpha1.ConditionReady, metav1.ConditionFalse, reasonLeavingMaintenance, "Orphan")
			// Another boot in maintenance mode never installed anything.
			s.machines[machine].Do(backInMaintenance("fp-11-2"))
			s.mustReconcile(machine)
			if !s.let(machine) {
				t.Errorf("still held: %s", describeConditions(s.get(machine)))
			}
		})
	}
}

func TestAnImpostorDoesntEndTheRemovalOfAMachineThatLives(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	claims := s.machines[machine].Snapshot().Facts
	s.world.Put("10.0.0.12", talostest.NewMachine(talostest.State{Mode: talostest.Maintenance, Fingerprint: "impostor", Facts: claims}))
	s.changeMachine(machine, func(m *v1alpha1.TalosMachine) { m.Status.Addresses = append(m.Status.Addresses, "10.0.0.12") })
	s.changeMachine(machine, deleting)
	s.machines[machine].Do(func(state *talostest.State) { state.Unreadable = true })
	s.mustReconcile(machine)
	s.world.Put("10.0.0.11", nil) // and its kubelet still reports
	s.mustReconcile(machine)
	if s.let(machine) {
		t.Errorf("a living machine was let go without being wiped: %s", describeConditions(s.get(machine)))
	}
}

func TestThatAMachineIsToBeWipedIsKnownBeforeItIsTold(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.changeMachine(machine, deleting)
	known := false
	s.machines[machine].Do(func(state *talostest.State) {
		state.OnReset = func() { known = leaving(s.get(machine)) }
		state.ResetErr = context.DeadlineExceeded
	})
	m := s.mustReconcile(machine)
	if condition := find(m, v1alpha1.ConditionReset); !known || condition == nil || condition.Status != metav1.ConditionUnknown {
		t.Fatalf("known before: %v; %s", known, describeConditions(m))
	}
	// The answer was lost and the machine isn't seen again: what is waited for counts from when it was told.
	s.world.Put("10.0.0.11", nil)
	s.clock.Step(resetSilence + time.Minute)
	// It may hold all that it held, so that is a person's to say.
	wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonUnreachable, "whether it heard of it isn't known", "--force")
	if s.let(machine) {
		t.Fatal("it was forgotten")
	}
	s.changeMachine(machine, forcing)
	s.mustReconcile(machine)
	if !s.let(machine) || len(s.cluster().Status.Quarantined) != 1 {
		t.Errorf("quarantined: %v, held: %s", s.cluster().Status.Quarantined, describeConditions(s.get(machine)))
	}
}

func TestAMachineThatGoesOnRunningIsToldAgain(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.changeMachine(machine, deleting)
	told := 0
	s.machines[machine].Do(func(state *talostest.State) {
		state.OnReset = func() { told++ }
		state.ResetErr = context.DeadlineExceeded
	})
	s.mustReconcile(machine)
	s.mustReconcile(machine)
	if told != 1 {
		t.Errorf("told %d times at once", told)
	}
	s.clock.Step(resetPatience + time.Second)
	s.mustReconcile(machine)
	if told != 2 {
		t.Errorf("told %d times, want 2", told)
	}
}

func TestAWipedMachineThatIsRemovedBeforeItIsProvisionedAgain(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.wipe(machine)
	s.mustReconcile(machine)
	s.registerNode("node-11", "10.0.0.11")
	s.changeMachine(machine, deleting)
	s.mustReconcile(machine)
	nodes, err := s.kube.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 0 || !s.let(machine) {
		t.Errorf("Nodes left: %d (%v), finalizer gone: %v; %s", len(nodes.Items), err, s.let(machine), describeConditions(s.get(machine)))
	}
}

func TestAMachineOfAClusterThatIsGoneCanBeLetGo(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.changeMachine(machine, func(m *v1alpha1.TalosMachine) { m.Spec.Approval.ClusterUID = "another" })
	s.changeMachine(machine, deleting)
	wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonClusterReplaced, "spec.deletionPolicy to Orphan")
	if s.let(machine) {
		t.Fatal("let go at once")
	}
	s.changeMachine(machine, func(m *v1alpha1.TalosMachine) { m.Spec.DeletionPolicy = v1alpha1.DeletionOrphan })
	s.mustReconcile(machine)
	if !s.let(machine) || s.machines[machine].Snapshot().Resets != 0 {
		t.Errorf("finalizer gone: %v, resets: %d", s.let(machine), s.machines[machine].Snapshot().Resets)
	}
}
