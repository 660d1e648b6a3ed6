// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
		setTrue(m, conditionReset, reasonReset, "")
		return m
	}
	for name, tc := range map[string]struct {
		members []talos.EtcdMember
		others  []*v1alpha1.TalosMachine
		want    string
	}{
		"three, all well":      {members: []talos.EtcdMember{member("a", false), member("b", false), member("c", false)}, others: []*v1alpha1.TalosMachine{machine("b", true), machine("c", true)}},
		"three, one down":      {members: []talos.EtcdMember{member("a", false), member("b", false), member("c", false)}, others: []*v1alpha1.TalosMachine{machine("b", true), machine("c", false)}, want: "1 of the 2 etcd members that would stay are Ready, 2 are needed"},
		"the last one":         {members: []talos.EtcdMember{member("a", false)}, want: "0 of the 0"},
		"a learner":            {members: []talos.EtcdMember{member("a", false), member("b", true)}, others: []*v1alpha1.TalosMachine{machine("b", true)}, want: "is a learner"},
		"another is leaving":   {members: []talos.EtcdMember{member("a", false), member("b", false)}, others: []*v1alpha1.TalosMachine{leaving(machine("b", true))}, want: "one at a time"},
		"a member nobody runs": {members: []talos.EtcdMember{member("a", false), member("b", false), member("x", false)}, others: []*v1alpha1.TalosMachine{machine("b", true)}, want: "1 of the 2"},
		"five, one down": {
			members: []talos.EtcdMember{member("a", false), member("b", false), member("c", false), member("d", false), member("e", false)},
			others:  []*v1alpha1.TalosMachine{machine("b", true), machine("c", true), machine("d", true), machine("e", false)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			me := machine("a", true)
			got := quorumWithout(me, "a", tc.members, append(tc.others, me))
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("want %q, got %q", tc.want, got)
			}
		})
	}
}
