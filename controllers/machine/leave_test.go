// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

// controlPlanes makes control planes that are Ready, with an etcd of all of them.
func (s *stack) controlPlanes(numbers ...int) []string {
	s.t.Helper()
	var names []string
	var members []talos.EtcdMember
	for i, n := range numbers {
		names = append(names, s.add(n, controlPlane))
		members = append(members, talos.EtcdMember{ID: uint64(i + 1), Hostname: s.get(names[i]).Spec.Hostname})
	}
	for _, name := range names {
		s.settle(name)
	}
	for i, name := range names {
		s.machines[name].Do(func(state *talostest.State) {
			state.Members, state.Etcd = slices.Clone(members), &talos.EtcdStatus{MemberID: uint64(i + 1), Leader: 1}
		})
		s.mustReconcile(name)
	}
	return names
}

func TestAControlPlaneWhoseEtcdIsNoGoodIsTakenOutByAnother(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		own, others []talos.EtcdMember
		left        int
	}{
		"its etcd is dead": {
			others: []talos.EtcdMember{{ID: 1, Hostname: "node-11"}, {ID: 2, Hostname: "node-12"}, {ID: 3, Hostname: "node-13"}}, left: 2,
		},
		"it is stuck as a learner": {
			others: []talos.EtcdMember{{ID: 1, Hostname: "node-11", Learner: true}, {ID: 2, Hostname: "node-12"}, {ID: 3, Hostname: "node-13"}}, left: 2,
		},
		"its etcd never said its name": {
			others: []talos.EtcdMember{{ID: 1, Learner: true, PeerURLs: []string{"https://10.0.0.11:2380"}}, {ID: 2, Hostname: "node-12"}}, left: 1,
		},
		"it is no member any more": {
			own:    []talos.EtcdMember{{ID: 2, Hostname: "node-12"}, {ID: 3, Hostname: "node-13"}},
			others: []talos.EtcdMember{{ID: 2, Hostname: "node-12"}, {ID: 3, Hostname: "node-13"}}, left: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			names := s.controlPlanes(11, 12, 13)
			s.machines[names[0]].Do(func(state *talostest.State) { state.Members = tc.own })
			for _, other := range names[1:] {
				s.machines[other].Do(func(state *talostest.State) { state.Members = slices.Clone(tc.others) })
			}
			s.changeMachine(names[0], deleting)
			s.mustReconcile(names[0])
			gone := s.machines[names[0]].Snapshot()
			fewest := min(len(s.machines[names[1]].Snapshot().Members), len(s.machines[names[2]].Snapshot().Members))
			if gone.Resets != 1 || gone.Ungraceful != 1 || fewest != tc.left {
				t.Fatalf("resets %d, of them not graceful %d, members left %d: %s", gone.Resets, gone.Ungraceful, fewest, describeConditions(s.get(names[0])))
			}
			s.mustReconcile(names[0])
			if !s.let(names[0]) {
				t.Errorf("still held: %s", describeConditions(s.get(names[0])))
			}
		})
	}
}

func TestAControlPlaneWithADeadEtcdThatTheOthersNeed(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	names := s.controlPlanes(11, 12, 13)
	s.machines[names[0]].Do(func(state *talostest.State) { state.Members = nil })
	s.changeMachine(names[1], func(m *v1alpha1.TalosMachine) { setFalse(m, v1alpha1.ConditionReady, "X", "") })
	s.changeMachine(names[0], deleting)
	m := s.mustReconcile(names[0])
	wantCondition(t, m, v1alpha1.ConditionReady, metav1.ConditionFalse, reasonEtcdUnhealthy, "1 of the 2 etcd members that would stay are Ready")
	if got := s.machines[names[0]].Snapshot().Resets; got != 0 {
		t.Errorf("it was wiped %d times", got)
	}
}

func TestControlPlanesLeaveOneAtATimeWhateverTheCacheShows(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	names := s.controlPlanes(11, 12, 13, 14, 15)
	var others sync.WaitGroup
	s.sync()
	for _, name := range names {
		s.changeMachine(name, deleting)
	}
	s.sync()
	// The cache doesn't move from here, as with events that are late. While the first is told, the second is looked at.
	s.machines[names[0]].Do(func(state *talostest.State) {
		state.OnReset = func() {
			others.Go(func() {
				if _, err := s.machine.Reconcile(context.Background(), names[1]); err != nil {
					t.Error(err)
				}
			})
			others.Wait()
		}
	})
	for _, name := range []string{names[0], names[2]} {
		if _, err := s.machine.Reconcile(context.Background(), name); err != nil {
			t.Error(err)
		}
	}
	resets := 0
	for _, name := range names {
		resets += s.machines[name].Snapshot().Resets
	}
	if resets != 1 {
		t.Errorf("%d control planes were wiped at once, want 1", resets)
	}
	if other := s.get(names[2]); leaving(other) {
		t.Errorf("the third is leaving: %s", describeConditions(other))
	}
}

func TestAControlPlaneLeavesOnlyIfEtcdKeepsItsQuorum(t *testing.T) {
	t.Parallel()
	member := func(name string, learner bool) talos.EtcdMember {
		return talos.EtcdMember{Hostname: name, Learner: learner}
	}
	machine := func(name string, ready bool) *v1alpha1.TalosMachine {
		m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		m.Spec.Role, m.Spec.ClusterRef.Name, m.Status.Hostname = v1alpha1.RoleControlPlane, "prod", name
		if ready {
			setTrue(m, v1alpha1.ConditionReady, v1alpha1.ReasonReady, "")
		}
		return m
	}
	leaving := func(m *v1alpha1.TalosMachine) *v1alpha1.TalosMachine {
		deleting(m)
		setTrue(m, v1alpha1.ConditionReset, reasonReset, "")
		return m
	}
	maybeLeaving := func(m *v1alpha1.TalosMachine) *v1alpha1.TalosMachine {
		deleting(m)
		set(m, v1alpha1.ConditionReset, metav1.ConditionUnknown, reasonResetting, "")
		return m
	}
	for name, tc := range map[string]struct {
		members []talos.EtcdMember
		others  []*v1alpha1.TalosMachine
		want    string
	}{
		"three, all well":                  {members: []talos.EtcdMember{member("a", false), member("b", false), member("c", false)}, others: []*v1alpha1.TalosMachine{machine("b", true), machine("c", true)}},
		"three, one down":                  {members: []talos.EtcdMember{member("a", false), member("b", false), member("c", false)}, others: []*v1alpha1.TalosMachine{machine("b", true), machine("c", false)}, want: "1 of the 2 etcd members that would stay are Ready, 2 are needed"},
		"the last one":                     {members: []talos.EtcdMember{member("a", false)}, want: "0 of the 0"},
		"a learner":                        {members: []talos.EtcdMember{member("a", false), member("b", true)}, others: []*v1alpha1.TalosMachine{machine("b", true)}, want: "is a learner"},
		"another is leaving":               {members: []talos.EtcdMember{member("a", false), member("b", false)}, others: []*v1alpha1.TalosMachine{leaving(machine("b", true))}, want: "one at a time"},
		"a member nobody runs":             {members: []talos.EtcdMember{member("a", false), member("b", false), member("x", false)}, others: []*v1alpha1.TalosMachine{machine("b", true)}, want: "1 of the 2"},
		"one that only learns itself":      {members: []talos.EtcdMember{member("a", true), member("b", false)}, others: []*v1alpha1.TalosMachine{machine("b", false)}},
		"one that etcd doesn't know":       {members: []talos.EtcdMember{member("b", false)}, others: []*v1alpha1.TalosMachine{machine("b", true)}},
		"one whose own etcd never started": {members: []talos.EtcdMember{member("b", false), {ID: 7, Learner: true, PeerURLs: []string{"https://10.0.0.1:2380"}}}, others: []*v1alpha1.TalosMachine{machine("b", false)}},
		"another may be leaving":           {members: []talos.EtcdMember{member("a", false), member("b", false)}, others: []*v1alpha1.TalosMachine{maybeLeaving(machine("b", true))}, want: "one at a time"},
		"five, one down": {
			members: []talos.EtcdMember{member("a", false), member("b", false), member("c", false), member("d", false), member("e", false)},
			others:  []*v1alpha1.TalosMachine{machine("b", true), machine("c", true), machine("d", true), machine("e", false)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			me := machine("a", true)
			me.Status.Addresses = []string{"10.0.0.1"}
			got := quorumWithout(me, ownMember(me, "a", tc.members), tc.members, append(tc.others, me))
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("want %q, got %q", tc.want, got)
			}
		})
	}
}
