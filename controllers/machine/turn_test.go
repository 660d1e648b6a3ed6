// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

func TestControlPlanesJoinOneAtATime(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	names := []string{s.add(11, controlPlane), s.add(12, controlPlane), s.add(13, controlPlane)}
	most := 0
	for range 200 {
		onTheirWay, ready := 0, 0
		for _, name := range names {
			s.mustReconcile(name)
			s.tick(name)
			if m := s.get(name); onItsWay(m, s.clock.Now()) {
				onTheirWay++
			} else if isTrue(m, v1alpha1.ConditionReady) {
				ready++
			}
		}
		most = max(most, onTheirWay)
		if ready == len(names) {
			break
		}
		s.clock.Step(2 * time.Second)
	}
	if most != 1 {
		t.Errorf("%d control planes were on their way at once, want 1", most)
	}
	for _, name := range names {
		wantCondition(t, s.get(name), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	}
}

func TestTwoWorkersOfTheControllerDontStartTwoControlPlanes(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	names := []string{s.add(11, controlPlane), s.add(12, controlPlane), s.add(13, controlPlane), s.add(14, controlPlane)}
	s.sync()
	// The cache doesn't move while all of them are looked at, as with events that are late.
	var running sync.WaitGroup
	for _, name := range names {
		running.Go(func() {
			if _, err := s.machine.Reconcile(context.Background(), name); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	applied := 0
	for _, name := range names {
		applied += s.applies(name)
	}
	if applied != 1 {
		t.Errorf("%d control planes got a configuration at once, want 1", applied)
	}
}

func TestWorkersGoAFewAtATime(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Apply.MaxParallel = 2 })
	names := []string{s.add(11), s.add(12), s.add(13)}
	for _, name := range names {
		s.mustReconcile(name)
	}
	wantCondition(t, s.get(names[2]), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonWaitingForTurn, "2 workers", "maxParallel")
	s.settle(names...)
}

func TestAWorkerThatNeverComesHoldsItsPlaceForATime(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Apply.MaxParallel = 1 })
	first, second := s.add(11), s.add(12)
	s.mustReconcile(first)
	s.machines[first].Do(func(state *talostest.State) { state.Mode = talostest.Off })
	s.clock.Step(time.Minute)
	wantCondition(t, s.mustReconcile(second), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonWaitingForTurn)
	s.clock.Step(stuckAfter)
	s.mustReconcile(second)
	if s.applies(second) != 1 {
		t.Errorf("the second worker still waits: %s", describeConditions(s.get(second)))
	}
}

func TestATurnThatWasntUsedIsGivenBack(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	first, second := s.add(11, controlPlane), s.add(12, controlPlane)
	s.machines[first].Do(func(state *talostest.State) { state.Facts.Inventory = nil })
	wantCondition(t, s.mustReconcile(first), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonDiskMissing)
	s.mustReconcile(second)
	if s.applies(second) != 1 {
		t.Errorf("the second control plane waits: %s", describeConditions(s.get(second)))
	}
}

func TestTheLaterApprovalWaitsInAConflict(t *testing.T) {
	t.Parallel()
	static := func(address string) func(*v1alpha1.TalosMachine) {
		return func(m *v1alpha1.TalosMachine) {
			m.Spec.Network = &v1alpha1.MachineNetwork{
				Interface:  v1alpha1.InterfaceMatch{MAC: m.Spec.Identity.MACAddresses[0]},
				Addressing: v1alpha1.AddressingStatic, Addresses: []string{address},
			}
		}
	}
	for name, change := range map[string]func(*v1alpha1.TalosMachine){
		"of hostnames": func(m *v1alpha1.TalosMachine) { m.Spec.Hostname = "same" },
		"of addresses": static("10.0.0.99/24"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			first, second := s.add(11, change), s.add(12, change)
			wantCondition(t, s.mustReconcile(second), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonConflict, first)
			s.mustReconcile(first)
			if s.applies(first) != 1 || s.applies(second) != 0 {
				t.Errorf("configurations: first %d, second %d", s.applies(first), s.applies(second))
			}
		})
	}
	t.Run("of hostnames, when the earlier one is approved again", func(t *testing.T) {
		t.Parallel()
		same := func(m *v1alpha1.TalosMachine) { m.Spec.Hostname = "same" }
		s := newStack(t)
		first, second := s.add(11, same), s.add(12, same)
		s.mustReconcile(first)
		s.changeMachine(first, func(m *v1alpha1.TalosMachine) {
			at := metav1.NewTime(s.clock.Now().Add(time.Hour))
			m.Spec.Approval.At = &at
		})
		wantCondition(t, s.mustReconcile(second), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonConflict, first)
		if got := s.applies(second); got != 0 {
			t.Errorf("the second machine got %d configurations", got)
		}
	})
	t.Run("of a hostname with an adopted machine that was approved later", func(t *testing.T) {
		t.Parallel()
		s := newStack(t)
		s.add(13, func(m *v1alpha1.TalosMachine) {
			m.Spec.Origin, m.Spec.Address, m.Spec.Hostname = v1alpha1.MachineAdopted, "10.0.0.13", "node-12"
		})
		machine := s.add(12)
		wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonConflict)
	})
	t.Run("with a Node that lives", func(t *testing.T) {
		t.Parallel()
		s := newStack(t)
		machine := s.add(11)
		s.registerNode("node-11", "10.9.9.9")
		wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonConflict, "node-11")
	})
}

func TestTheDeclaredAddressIsDialledOnlyOnceItWasSet(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11, func(m *v1alpha1.TalosMachine) {
		m.Spec.Network = &v1alpha1.MachineNetwork{
			Interface:  v1alpha1.InterfaceMatch{MAC: m.Spec.Identity.MACAddresses[0]},
			Addressing: v1alpha1.AddressingStatic, Addresses: []string{"10.0.40.11/24"},
		}
	})
	impostor := talostest.NewMachine(talostest.State{Mode: talostest.Maintenance, Fingerprint: "impostor"})
	s.world.Put("10.0.40.11", impostor)
	s.mustReconcile(machine)
	if got := s.applies(machine); got != 1 {
		t.Fatalf("the machine where it was seen got %d configurations: %s", got, describeConditions(s.get(machine)))
	}
	if got := len(impostor.Snapshot().Applied); got != 0 {
		t.Fatal("whoever is at the declared address got a configuration")
	}
	// After its reboot it is at the declared address, and silent where it was.
	s.world.Put("10.0.0.11", nil)
	s.world.Put("10.0.40.11", s.machines[machine])
	s.machines[machine].Do(func(state *talostest.State) { state.Facts.Addresses = []string{"10.0.40.11"} })
	s.settle(machine)
	if got := s.get(machine).Status.Addresses; len(got) != 1 || got[0] != "10.0.40.11" {
		t.Errorf("addresses are %v", got)
	}
}

func TestAnAdoptedMachineIsReadAndNotWritten(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11, func(m *v1alpha1.TalosMachine) {
		m.Spec.Origin, m.Spec.Address = v1alpha1.MachineAdopted, "10.0.0.11"
		m.Spec.ApprovalState, m.Spec.Approval = v1alpha1.ApprovalPending, nil
		m.Status = v1alpha1.TalosMachineStatus{}
	})
	s.machines[machine].Do(func(state *talostest.State) {
		state.Mode, state.Config = talostest.Configured, []byte("its own")
		state.Facts.Stage = talos.MachineStage{Stage: v1alpha1.StageBooting}
		state.Facts.SystemDisk = &v1alpha1.SystemDisk{Device: "/dev/sda", Serial: "D11"}
	})
	m := s.mustReconcile(machine)
	if m.Status.Inventory == nil || m.Status.Phase != v1alpha1.PhasePending {
		t.Fatalf("a person can't see what to approve: %+v", m.Status)
	}
	s.changeMachine(machine, func(m *v1alpha1.TalosMachine) { m.Spec.ApprovalState = v1alpha1.ApprovalApproved })
	s.settle(machine)
	if got := s.applies(machine); got != 0 {
		t.Errorf("an adopted machine got %d configurations", got)
	}
	s.machines[machine].Do(func(state *talostest.State) {
		state.Mode, state.Facts.Stage = talostest.Maintenance, talos.MachineStage{Stage: v1alpha1.StageMaintenance}
	})
	wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonWiped)
	if got := s.applies(machine); got != 0 {
		t.Errorf("an adopted machine got %d configurations", got)
	}
}

func TestAStatusThatWasLostIsFoundAgainOnTheMachine(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.changeMachine(machine, func(m *v1alpha1.TalosMachine) {
		m.Status = v1alpha1.TalosMachineStatus{Addresses: []string{"10.0.0.11"}}
	})
	s.settle(machine)
	if got := s.applies(machine); got != 1 {
		t.Errorf("the machine got %d configurations, want only the first", got)
	}
}

func TestAMachineThatWasLostWithAnotherRoleIsNotTakenOver(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.changeMachine(machine, func(m *v1alpha1.TalosMachine) {
		m.Spec.Role = v1alpha1.RoleControlPlane
		m.Status = v1alpha1.TalosMachineStatus{Addresses: []string{"10.0.0.11"}}
	})
	for range 2 {
		m := s.mustReconcile(machine)
		wantCondition(t, m, v1alpha1.ConditionReady, metav1.ConditionFalse, reasonOtherConfiguration, "runs as worker", "approved as controlplane")
		if m.Status.Provisioning != nil {
			t.Errorf("what it runs was taken for what was sent: %+v", m.Status.Provisioning)
		}
	}
}
