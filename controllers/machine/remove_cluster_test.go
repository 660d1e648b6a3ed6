// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

// goingWith deletes the cluster by a policy.
func goingWith(policy v1alpha1.ClusterDeletionPolicy) func(*v1alpha1.TalosCluster) {
	return func(c *v1alpha1.TalosCluster) {
		now := metav1.Now()
		c.DeletionTimestamp, c.Spec.DeletionPolicy = &now, policy
	}
}

func TestNothingIsWrittenToTheMachinesOfAClusterThatIsLetGo(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	plane, worker, fresh := s.add(11, controlPlane), s.add(21), s.add(22)
	s.settle(plane, worker)
	applied := s.applies(worker)
	s.changeCluster(goingWith(v1alpha1.ClusterDeletionOrphan))
	// Not even a configuration, to one that was approved a moment ago or has another to have by now.
	s.changeMachine(worker, func(m *v1alpha1.TalosMachine) { m.Spec.NodeLabels = map[string]string{"a": "b"} })
	for _, name := range []string{plane, worker, fresh} {
		wantCondition(t, s.mustReconcile(name), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, reasonClusterDeleted)
		s.changeMachine(name, deleting)
		s.mustReconcile(name)
		if got := s.machines[name].Snapshot(); !s.let(name) || got.Resets != 0 || got.Reboots != 0 {
			t.Errorf("machine %s: let go %v, resets %d, reboots %d", name, s.let(name), got.Resets, got.Reboots)
		}
	}
	if s.applies(worker) != applied || s.applies(fresh) != 0 {
		t.Error("a configuration was sent")
	}
	if s.node("node-11") == nil || s.node("node-21") == nil {
		t.Error("a Node was deleted")
	}
}

func TestAPersonStopsADestructionBeforeTheMachineIsTold(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.changeCluster(goingWith(v1alpha1.ClusterDeletionDestroy))
	s.changeMachine(machine, deleting)
	s.sync() // the cache shows the destruction, and the API that it was stopped
	s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.DeletionPolicy = v1alpha1.ClusterDeletionOrphan })
	if _, err := s.machine.Reconcile(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	if s.resets(machine) != 0 {
		t.Fatal("it was wiped, by an old cache")
	}
	s.mustReconcile(machine)
	if !s.let(machine) || s.resets(machine) != 0 {
		t.Errorf("let go: %v, resets %d", s.let(machine), s.resets(machine))
	}
}

func TestTheLastControlPlaneOfADestroyedClusterGoesUngracefully(t *testing.T) {
	t.Parallel()
	for name, members := range map[string][]talos.EtcdMember{"its etcd is well": {{ID: 1, Hostname: "node-11"}}, "its etcd is dead": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			plane := s.controlPlanes(11)[0]
			s.machines[plane].Do(func(state *talostest.State) { state.Members = members })
			s.changeMachine(plane, deleting)
			if s.mustReconcile(plane); s.resets(plane) != 0 {
				t.Fatal("the last control plane of a cluster that stays was wiped")
			}
			s.changeCluster(goingWith(v1alpha1.ClusterDeletionDestroy))
			s.mustReconcile(plane)
			if got := s.machines[plane].Snapshot(); got.Resets != 1 || got.Ungraceful != 1 {
				t.Errorf("resets %d, of them not graceful %d: %s", got.Resets, got.Ungraceful, describeConditions(s.get(plane)))
			}
		})
	}
}

func TestControlPlanesOfADestroyedClusterLeaveEtcdWhileThereIsOne(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	names := s.controlPlanes(11, 12, 13)
	s.changeCluster(goingWith(v1alpha1.ClusterDeletionDestroy))
	// Those that wait for their turn are looked at meanwhile, and are as well as they were.
	for _, name := range []string{names[0], names[2]} {
		m := s.mustReconcile(name)
		wantCondition(t, m, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
		wantCondition(t, m, v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, reasonClusterDeleted)
	}
	s.changeMachine(names[1], deleting)
	s.mustReconcile(names[1])
	if got := s.machines[names[1]].Snapshot(); got.Resets != 1 || got.Ungraceful != 0 {
		t.Errorf("resets %d, of them not graceful %d: %s", got.Resets, got.Ungraceful, describeConditions(s.get(names[1])))
	}
}

func TestAWipedControlPlanesDeadMemberIsRemovedBeforeItJoinsAgain(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	names := s.controlPlanes(11, 12, 13)
	s.changeMachine(names[0], func(m *v1alpha1.TalosMachine) { m.Status.EtcdMemberID = "1" })
	s.wipe(names[0])
	s.machines[names[2]].Do(func(state *talostest.State) { state.Etcd = nil })
	s.clock.Step(time.Minute)
	m := s.mustReconcile(names[0])
	wantCondition(t, m, v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, reasonEtcdUnhealthy, "1 of the others are healthy, where 2 are needed")
	if members := s.machines[names[1]].Snapshot().Members; len(members) != 3 {
		t.Fatalf("members: %v", members)
	}
	s.machines[names[2]].Do(func(state *talostest.State) { state.Etcd = &talos.EtcdStatus{MemberID: 3, Leader: 2} })
	m = s.mustReconcile(names[0])
	left := min(len(s.machines[names[1]].Snapshot().Members), len(s.machines[names[2]].Snapshot().Members))
	if left != 2 || m.Status.EtcdMemberID != "" || m.Status.Phase != v1alpha1.PhaseApproved {
		t.Errorf("members left: %d, on record %q, phase %s: %s", left, m.Status.EtcdMemberID, m.Status.Phase, describeConditions(m))
	}
}

func TestAWipedControlPlaneThatIsHeldKeepsItsMember(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	names := s.controlPlanes(11, 12, 13)
	s.changeMachine(names[0], func(m *v1alpha1.TalosMachine) {
		m.Annotations = map[string]string{v1alpha1.HoldApplyAnnotation: ""}
	})
	s.wipe(names[0])
	wantCondition(t, s.mustReconcile(names[0]), v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonHeld)
	if members := s.machines[names[1]].Snapshot().Members; len(members) != 3 {
		t.Errorf("members: %v", members)
	}
}
