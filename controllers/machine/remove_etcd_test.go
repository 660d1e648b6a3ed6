// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

// members are the IDs in the shortest list of members that a control plane's etcd has: each of the simulated ones has its own.
func (s *stack) members(names ...string) []uint64 {
	s.t.Helper()
	var fewest []uint64
	for i, name := range names {
		var ids []uint64
		for _, member := range s.machines[name].Snapshot().Members {
			ids = append(ids, member.ID)
		}
		if i == 0 || len(ids) < len(fewest) {
			fewest = ids
		}
	}
	return fewest
}

func TestAControlPlaneThatWasToldEndsOnceEtcdIsWithoutIt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		then func(*stack, []string)
		held int // in quarantine
	}{
		"it left etcd": {then: func(s *stack, names []string) {
			for _, other := range names[1:] {
				s.machines[other].Do(func(state *talostest.State) { state.Members = state.Members[1:] })
			}
		}},
		"a person gives it up": {then: func(s *stack, names []string) { s.changeMachine(names[0], forcing) }, held: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			names := s.controlPlanes(11, 12, 13)
			s.changeMachine(names[0], deleting)
			s.mustReconcile(names[0])
			if !isTrue(s.get(names[0]), v1alpha1.ConditionReset) {
				t.Fatalf("it wasn't told: %s", describeConditions(s.get(names[0])))
			}
			s.world.Put("10.0.0.11", nil) // the power goes before it did anything
			s.clock.Step(resetSilence + time.Minute)
			wantCondition(t, s.mustReconcile(names[0]), v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonUnreachable, "etcd still has its member 1", "--force")
			if s.let(names[0]) {
				t.Fatal("it was forgotten")
			}
			tc.then(s, names)
			s.mustReconcile(names[0])
			if left := s.members(names[1:]...); !s.let(names[0]) || !slices.Equal(left, []uint64{2, 3}) || len(s.cluster().Status.Quarantined) != tc.held {
				t.Errorf("members %v, quarantined %d, held: %s", left, len(s.cluster().Status.Quarantined), describeConditions(s.get(names[0])))
			}
		})
	}
}

func TestOneThatWasToldAndRunsOnIsInNobodysWay(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	names := s.controlPlanes(11, 12, 13)
	s.changeMachine(names[0], deleting)
	s.machines[names[0]].Do(func(state *talostest.State) { state.ResetErr = context.DeadlineExceeded })
	s.mustReconcile(names[0])
	// Another one dies, without which this one can't leave.
	s.machines[names[1]].Do(off)
	s.changeMachine(names[1], func(m *v1alpha1.TalosMachine) {
		setFalse(m, v1alpha1.ConditionReady, v1alpha1.ReasonUnreachable, "")
		forcing(m)
		deleting(m)
	})
	s.mustReconcile(names[1])
	if s.let(names[1]) {
		t.Fatal("two left at once")
	}
	s.clock.Step(resetPatience + time.Second)
	wantCondition(t, s.mustReconcile(names[0]), v1alpha1.ConditionReady, metav1.ConditionFalse, reasonEtcdUnhealthy, "1 of the 2")
	s.mustReconcile(names[1])
	if !s.let(names[1]) {
		t.Errorf("each waits for the other: %s; %s", describeConditions(s.get(names[0])), describeConditions(s.get(names[1])))
	}
}

func TestOneThatWasToldAndNeitherRunsNorIsWipedNeedsAPerson(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.changeMachine(machine, deleting)
	s.machines[machine].Do(func(state *talostest.State) {
		state.ResetErr = context.DeadlineExceeded
		state.OnReset = func() {
			s.machines[machine].Do(func(state *talostest.State) { state.Facts.Stage.Stage = v1alpha1.StageBooting })
		}
	})
	s.mustReconcile(machine)
	s.clock.Step(resetSilence + time.Minute)
	wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionReady, metav1.ConditionFalse, reasonReset, "booting", "power it off")
	s.machines[machine].Do(off)
	s.changeMachine(machine, forcing)
	s.mustReconcile(machine)
	if !s.let(machine) || len(s.cluster().Status.Quarantined) != 1 {
		t.Errorf("still held: %s", describeConditions(s.get(machine)))
	}
}

func TestAControlPlaneThatWasWipedByHandLeavesNoDeadMember(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	names := s.controlPlanes(11, 12, 13)
	s.wipe(names[0])
	s.machines[names[2]].Do(func(state *talostest.State) { state.Etcd = nil })
	s.changeMachine(names[0], deleting)
	wantCondition(t, s.mustReconcile(names[0]), v1alpha1.ConditionReady, metav1.ConditionFalse, reasonEtcdUnhealthy, "2 are needed", "Orphan")
	if left := s.members(names[1:]...); len(left) != 3 || s.let(names[0]) {
		t.Fatalf("members %v, let go: %v", left, s.let(names[0]))
	}
	s.machines[names[2]].Do(func(state *talostest.State) { state.Etcd = &talos.EtcdStatus{MemberID: 3, Leader: 2} })
	s.mustReconcile(names[0])
	if left := s.members(names[1:]...); !slices.Equal(left, []uint64{2, 3}) || !s.let(names[0]) || s.resets(names[0]) != 0 {
		t.Errorf("members %v, held: %s", left, describeConditions(s.get(names[0])))
	}
}

func TestNoOtherMachinesMemberIsTakenForItsOwn(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	names := s.controlPlanes(11, 12, 13)
	s.machines[names[0]].Do(func(state *talostest.State) { state.Members = nil })
	for _, other := range names[1:] {
		s.machines[other].Do(func(state *talostest.State) {
			// Leases moved: etcd has an address of another member that is this machine's by now.
			state.Members = []talos.EtcdMember{{ID: 2, Hostname: "node-12", PeerURLs: []string{"https://10.0.0.11:2380"}}, {ID: 1, Hostname: "node-11"}, {ID: 3, Hostname: "node-13"}}
		})
	}
	s.changeMachine(names[0], deleting)
	s.mustReconcile(names[0])
	if left := s.members(names[1:]...); !slices.Equal(left, []uint64{2, 3}) || s.resets(names[0]) != 1 {
		t.Errorf("members %v, resets %d: %s", left, s.resets(names[0]), describeConditions(s.get(names[0])))
	}
}

func TestWhoTakesAMemberOutSaysWhoItIs(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	names := s.controlPlanes(11, 12, 13)
	stranger := s.machines[names[1]].Snapshot()
	stranger.Facts.Identity = v1alpha1.MachineIdentity{UUID: "4c4c4544-0051-3610-8052-b4c04f4c9999", SerialNumber: "X", MACAddresses: []string{"02:00:5e:00:53:99"}}
	other := talostest.NewMachine(stranger)
	s.world.Put("10.0.0.12", other)
	s.world.Put("10.0.0.13", other)
	s.machines[names[0]].Do(func(state *talostest.State) { state.Members = nil })
	s.changeMachine(names[0], deleting)
	wantCondition(t, s.mustReconcile(names[0]), v1alpha1.ConditionReady, metav1.ConditionFalse, reasonEtcdUnhealthy, "another machine answers there")
	if left := other.Snapshot().Members; len(left) != 3 || s.resets(names[0]) != 0 {
		t.Errorf("members %v, resets %d", left, s.resets(names[0]))
	}
}

func TestALongSnapshotIsFollowedByAnotherLook(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	names := s.controlPlanes(11, 12, 13)
	s.snapshotTakes = time.Minute
	s.changeMachine(names[0], func(m *v1alpha1.TalosMachine) {
		m.Spec.Removal = &v1alpha1.MachineRemoval{SkipDrain: true}
		deleting(m)
	})
	wantCondition(t, s.mustReconcile(names[0]), v1alpha1.ConditionReady, metav1.ConditionFalse, reasonNoSnapshot, "judged anew")
	if s.resets(names[0]) != 0 {
		t.Fatal("it was wiped by what etcd was a minute ago")
	}
	s.snapshotTakes = 0
	s.mustReconcile(names[0])
	if s.resets(names[0]) != 1 {
		t.Errorf("resets %d: %s", s.resets(names[0]), describeConditions(s.get(names[0])))
	}
}

func TestControlPlanesLeaveOneAtATimeWhicheverProcessTellsThem(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	names := s.controlPlanes(11, 12, 13, 14, 15)
	s.changeMachine(names[0], deleting)
	s.changeMachine(names[1], deleting)
	another := s.get(names[1])
	set(another, v1alpha1.ConditionReset, metav1.ConditionUnknown, reasonResetting, "")
	s.api.PrependReactor("update", "talosmachines", func(action clienttesting.Action) (bool, runtime.Object, error) {
		m, ok := action.(clienttesting.UpdateAction).GetObject().(*v1alpha1.TalosMachine)
		if !ok || m.Name != names[0] || !leaving(m) {
			return false, nil, nil
		}
		// As one that led until a moment ago does.
		return false, nil, s.api.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("talosmachines"), another, "")
	})
	m := s.mustReconcile(names[0])
	wantCondition(t, m, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonWaitingForTurn, names[1])
	if s.resets(names[0]) != 0 || leaving(m) {
		t.Errorf("two leave at once: %s", describeConditions(m))
	}
}
