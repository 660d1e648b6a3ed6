// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

func forcing(m *v1alpha1.TalosMachine) {
	m.Spec.Removal = &v1alpha1.MachineRemoval{Force: true, Consent: m.Name, By: "anna"}
}

func off(state *talostest.State) { state.Mode = talostest.Off }

func (s *stack) cluster() *v1alpha1.TalosCluster {
	s.t.Helper()
	cluster, err := s.api.IchorV1alpha1().TalosClusters().Get(context.Background(), "prod", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return cluster
}

func TestAWorkerThatDoesntAnswerIsGivenUpWithConsent(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.machines[machine].Do(off)
	s.changeMachine(machine, deleting)
	wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonUnreachable, "--force")
	s.changeMachine(machine, func(m *v1alpha1.TalosMachine) { forcing(m); m.Spec.Removal.Consent = "another" })
	s.mustReconcile(machine)
	if s.let(machine) {
		t.Fatal("it was given up with the consent for another")
	}
	s.changeMachine(machine, forcing)
	s.mustReconcile(machine)
	if !s.let(machine) || s.node("node-11") != nil {
		t.Fatalf("let go: %v, Node: %v; %s", s.let(machine), s.node("node-11"), describeConditions(s.get(machine)))
	}
	held := s.cluster().Status.Quarantined
	if len(held) != 1 || held[0].Name != machine || held[0].By != "anna" || held[0].NodeName != "node-11" || held[0].Reason == "" || !same(held[0].Identity, s.get(machine).Spec.Identity) {
		t.Errorf("quarantined: %+v", held)
	}
}

func TestAControlPlaneThatDoesntAnswerIsTakenOutOfEtcd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		members []talos.EtcdMember
		broken  []int // of the others, whose etcd is down
		alarms  []talos.EtcdAlarm
		record  string
		says    string
		left    []uint64
	}{
		"of three, the others are well":  {left: []uint64{2, 3}},
		"of three, another one is down":  {broken: []int{1}, says: "3 voters, and 1 of the others are healthy, where 2 are needed"},
		"nobody has a leader":            {broken: []int{1, 2}, says: "no other control plane has an etcd with a leader"},
		"another is a learner":           {members: []talos.EtcdMember{{ID: 1, Hostname: "node-11"}, {ID: 2, Hostname: "node-12"}, {ID: 3, Hostname: "node-13", Learner: true}}, says: "is a learner"},
		"etcd has an alarm":              {alarms: []talos.EtcdAlarm{{MemberID: 3, Kind: "CORRUPT"}}, says: "CORRUPT"},
		"it is no member any more":       {members: []talos.EtcdMember{{ID: 2, Hostname: "node-12"}, {ID: 3, Hostname: "node-13"}}, left: []uint64{2, 3}},
		"its ID is another's by now":     {members: []talos.EtcdMember{{ID: 1, Hostname: "node-99"}, {ID: 2, Hostname: "node-12"}, {ID: 3, Hostname: "node-13"}}, says: "is called node-99"},
		"it came back as another member": {members: []talos.EtcdMember{{ID: 7, Hostname: "node-11"}, {ID: 2, Hostname: "node-12"}, {ID: 3, Hostname: "node-13"}}, left: []uint64{2, 3}},
		"the member on record is gone, and another has its name": {
			members: []talos.EtcdMember{{ID: 7, Hostname: "node-11"}, {ID: 2, Hostname: "node-12"}, {ID: 3, Hostname: "node-13"}}, record: "1", left: []uint64{7, 2, 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			names := s.controlPlanes(11, 12, 13)
			for i, other := range names {
				s.machines[other].Do(func(state *talostest.State) {
					if tc.members != nil {
						state.Members = slices.Clone(tc.members)
					}
					state.Alarms = tc.alarms
					if i > 0 && slices.Contains(tc.broken, i) {
						state.Etcd, state.Members = nil, nil
					}
				})
			}
			s.machines[names[0]].Do(off)
			s.changeMachine(names[0], func(m *v1alpha1.TalosMachine) {
				forcing(m)
				deleting(m)
				m.Status.EtcdMemberID = "1"
				if tc.record != "" {
					m.Status.Removal = &v1alpha1.RemovalStatus{EtcdMemberID: tc.record}
				}
			})
			m := s.mustReconcile(names[0])
			if tc.says != "" {
				wantCondition(t, m, v1alpha1.ConditionReady, metav1.ConditionFalse, reasonEtcdUnhealthy, tc.says)
				if s.let(names[0]) || len(s.cluster().Status.Quarantined) != 0 || s.node("node-11") == nil {
					t.Error("it was given up")
				}
				return
			}
			if !s.let(names[0]) || len(s.cluster().Status.Quarantined) != 1 {
				t.Fatalf("still held: %s", describeConditions(m))
			}
			fewest := tc.members
			for _, other := range names[1:] {
				if members := s.machines[other].Snapshot().Members; fewest == nil || len(members) < len(fewest) {
					fewest = members
				}
			}
			var left []uint64
			for _, member := range fewest {
				left = append(left, member.ID)
			}
			if !slices.Equal(left, tc.left) {
				t.Errorf("members left: %v, want %v", left, tc.left)
			}
		})
	}
}

func TestWhatIsGivenUpIsOnRecordBeforeTheMemberIsRemoved(t *testing.T) {
	t.Parallel()
	// The controller is killed at each of its writes in turn, and a new one goes on.
	for kill := 1; kill <= 4; kill++ {
		t.Run(fmt.Sprintf("killed at write %d", kill), func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			names := s.controlPlanes(11, 12, 13)
			s.machines[names[0]].Do(off)
			s.changeMachine(names[0], func(m *v1alpha1.TalosMachine) { forcing(m); deleting(m); m.Status.EtcdMemberID = "1" })
			s.start(kill)
			_, _ = s.reconcile(names[0])
			members := min(len(s.machines[names[1]].Snapshot().Members), len(s.machines[names[2]].Snapshot().Members))
			if m := s.get(names[0]); members == 2 && (!leaving(m) || !givenUp(m) || m.Status.Removal.EtcdMemberID != "1" || len(s.cluster().Status.Quarantined) != 1) {
				t.Errorf("the member was removed before that was on record: %+v", m.Status.Removal)
			}
			s.start(0)
			for range 3 {
				if !s.let(names[0]) {
					s.mustReconcile(names[0])
				}
			}
			if !s.let(names[0]) || len(s.cluster().Status.Quarantined) != 1 || s.node("node-11") != nil {
				t.Errorf("not given up in the end: %s", describeConditions(s.get(names[0])))
			}
		})
	}
}

func TestAMachineThatIsNotAloneInGoingWaits(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	names := s.controlPlanes(11, 12, 13)
	s.machines[names[0]].Do(off)
	s.changeMachine(names[0], func(m *v1alpha1.TalosMachine) { forcing(m); deleting(m); m.Status.EtcdMemberID = "1" })
	s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Status.ActiveOperation = &v1alpha1.ActiveOperation{Name: "reboot-1"} })
	wantCondition(t, s.mustReconcile(names[0]), v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonWaitingForTurn, "reboot-1")
	s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Status.ActiveOperation = nil })
	s.mustReconcile(names[0])
	if !s.let(names[0]) {
		t.Errorf("still held: %s", describeConditions(s.get(names[0])))
	}
}

func TestNoMachineIsForgottenForAnother(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.machines[machine].Do(off)
	s.changeCluster(func(c *v1alpha1.TalosCluster) {
		c.Status.Quarantined = make([]v1alpha1.QuarantinedMachine, maxQuarantined)
	})
	s.changeMachine(machine, func(m *v1alpha1.TalosMachine) { forcing(m); deleting(m) })
	wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionReady, metav1.ConditionFalse, reasonQuarantineFull)
	if s.let(machine) {
		t.Error("it was given up and isn't quarantined")
	}
}
