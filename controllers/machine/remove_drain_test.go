// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/controllers/drain"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

var held = drain.Result{Blockers: []drain.Blocker{{Reason: drain.Budget, Name: "pod shop/db-0", Message: "is held by PodDisruptionBudget shop/db"}}}

func (s *stack) node(name string) *corev1.Node {
	s.t.Helper()
	node, err := s.kube.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return node
}

func (s *stack) resets(name string) int { return s.machines[name].Snapshot().Resets }

func TestAMachineIsWipedOnceItsNodeIsDrained(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.drains = func() drain.Result { return held }
	s.changeMachine(machine, deleting)
	m := s.mustReconcile(machine)
	wantCondition(t, m, v1alpha1.ConditionDrained, metav1.ConditionFalse, reasonDraining, "pod shop/db-0", "PodDisruptionBudget shop/db")
	wantCondition(t, m, v1alpha1.ConditionReady, metav1.ConditionFalse, reasonDraining, "pod shop/db-0")
	if node := s.node("node-11"); !node.Spec.Unschedulable || node.Annotations[v1alpha1.CordonedByAnnotation] != string(m.UID) {
		t.Errorf("the Node isn't cordoned for the machine: %+v", node.ObjectMeta)
	}
	s.clock.Step(drainPatience + time.Second)
	s.drained()
	m = s.mustReconcile(machine)
	wantCondition(t, m, v1alpha1.ConditionDrained, metav1.ConditionFalse, v1alpha1.ReasonDrainBlocked, "pod shop/db-0", "--skip-drain")
	s.mustReconcile(machine)
	if told := slices.DeleteFunc(s.drained(), func(event string) bool { return !strings.Contains(event, v1alpha1.ReasonDrainBlocked) }); len(told) != 1 || !strings.Contains(told[0], "Warning") {
		t.Errorf("events: %q, want one warning", told)
	}
	if s.resets(machine) != 0 {
		t.Fatal("it was wiped with its pods")
	}
	s.drains = func() drain.Result { return drain.Result{Done: true} }
	wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionDrained, metav1.ConditionTrue, reasonDrained)
	s.mustReconcile(machine)
	if s.resets(machine) != 1 || !s.let(machine) || s.node("node-11") != nil {
		t.Errorf("resets %d, let go: %v, Node: %v", s.resets(machine), s.let(machine), s.node("node-11"))
	}
}

func TestWhoDoesntWaitForADrain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change  func(*v1alpha1.TalosMachine)
		cluster func(*v1alpha1.TalosCluster)
		because string
	}{
		"a person said not to wait": {
			change:  func(m *v1alpha1.TalosMachine) { m.Spec.Removal = &v1alpha1.MachineRemoval{SkipDrain: true, By: "anna"} },
			because: "spec.removal.skipDrain was set by anna",
		},
		"a person would give it up, and it answers": {
			change: func(m *v1alpha1.TalosMachine) {
				m.Spec.Removal = &v1alpha1.MachineRemoval{Force: true, Consent: m.Name, By: "anna"}
			},
			because: "spec.removal.force was set by anna",
		},
		"the cluster is being destroyed": {
			cluster: func(c *v1alpha1.TalosCluster) {
				now := metav1.Now()
				c.DeletionTimestamp, c.Spec.DeletionPolicy = &now, v1alpha1.ClusterDeletionDestroy
			},
			because: "the whole cluster is being destroyed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			machine := s.add(11)
			s.settle(machine)
			s.drains = func() drain.Result { return held }
			if tc.change != nil {
				s.changeMachine(machine, tc.change)
			}
			if tc.cluster != nil {
				s.changeCluster(tc.cluster)
			}
			s.changeMachine(machine, deleting)
			m := s.mustReconcile(machine)
			wantCondition(t, m, v1alpha1.ConditionDrained, metav1.ConditionTrue, reasonDrained, tc.because)
			// Gracefully, Talos would drain the Node itself.
			if got := s.machines[machine].Snapshot(); got.Resets != 1 || got.Ungraceful != 1 {
				t.Errorf("resets %d, of them not graceful %d", got.Resets, got.Ungraceful)
			}
		})
	}
}

func TestAControlPlaneThatCantLeaveKeepsItsPods(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		alarms []talos.EtcdAlarm
		second func(*v1alpha1.TalosMachine)
		says   string
	}{
		"the others are too few": {second: func(m *v1alpha1.TalosMachine) { setFalse(m, v1alpha1.ConditionReady, "X", "") }, says: "1 of the 2 etcd members that would stay are Ready"},
		"etcd has an alarm":      {alarms: []talos.EtcdAlarm{{MemberID: 2, Kind: "NOSPACE"}}, says: "NOSPACE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			names := s.controlPlanes(11, 12, 13)
			if tc.second != nil {
				s.changeMachine(names[1], tc.second)
			}
			s.machines[names[0]].Do(func(state *talostest.State) { state.Alarms = tc.alarms })
			s.changeMachine(names[0], deleting)
			m := s.mustReconcile(names[0])
			wantCondition(t, m, v1alpha1.ConditionReady, metav1.ConditionFalse, reasonEtcdUnhealthy, tc.says)
			if s.node("node-11").Spec.Unschedulable || s.resets(names[0]) != 0 {
				t.Error("it was cordoned, or wiped")
			}
		})
	}
}

// withDisks gives a machine a user volume, storage, an unused disk, and an optical drive.
func withDisks(m *v1alpha1.TalosMachine) {
	for i, disk := range []v1alpha1.MachineDisk{
		{Role: v1alpha1.DiskEphemeral}, {Role: v1alpha1.DiskUserVolume, Name: "data"}, {Role: v1alpha1.DiskStorage}, {Role: v1alpha1.DiskUnused},
	} {
		disk.Match.Serial = "U" + string(rune('1'+i))
		m.Spec.Disks = append(m.Spec.Disks, disk)
		m.Status.Inventory.Disks = append(m.Status.Inventory.Disks, v1alpha1.DiskInventory{
			Device: "/dev/sd" + string(rune('b'+i)), Serial: disk.Match.Serial, Size: resource.MustParse("10Gi"),
		})
	}
	m.Status.Inventory.Disks = append(m.Status.Inventory.Disks, v1alpha1.DiskInventory{Device: "/dev/sr0", CDROM: true})
}

func TestWhatIsWipedAndKeptIsOnRecordBeforeAnyPodGoes(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11, withDisks)
	s.machines[machine].Do(func(state *talostest.State) { state.Facts.Inventory = s.get(machine).Status.Inventory })
	s.settle(machine)
	var before *v1alpha1.RemovalStatus
	s.drains = func() drain.Result {
		before = s.get(machine).Status.Removal
		return drain.Result{Done: true}
	}
	s.changeMachine(machine, func(m *v1alpha1.TalosMachine) {
		m.Spec.Removal = &v1alpha1.MachineRemoval{WipeDisks: []v1alpha1.DiskMatch{{Serial: "U3"}}}
	})
	s.changeMachine(machine, deleting)
	s.mustReconcile(machine)
	want := []v1alpha1.RemovedDisk{
		{Fate: v1alpha1.DiskWiped, Role: v1alpha1.DiskSystem, Serial: "D11", WWID: "naa.11", Device: "/dev/sda"},
		{Fate: v1alpha1.DiskWiped, Role: v1alpha1.DiskEphemeral, Serial: "U1", Device: "/dev/sdb"},
		{Fate: v1alpha1.DiskKept, Role: v1alpha1.DiskUserVolume, Serial: "U2", Device: "/dev/sdc", Name: "data"},
		{Fate: v1alpha1.DiskWiped, Role: v1alpha1.DiskStorage, Serial: "U3", Device: "/dev/sdd"},
		{Fate: v1alpha1.DiskKept, Role: v1alpha1.DiskUnused, Serial: "U4", Device: "/dev/sde"},
	}
	if before == nil {
		t.Fatal("nothing was on record")
	}
	if diff := cmp.Diff(want, before.Disks); diff != "" {
		t.Errorf("the record (-want +got):\n%s", diff)
	}
	if got := s.machines[machine].Snapshot(); got.Resets != 1 || !slices.Equal(got.WipedDisks, []string{"/dev/sdd"}) {
		t.Errorf("resets %d, user disks that were wiped: %v", got.Resets, got.WipedDisks)
	}
	if told := strings.Join(s.drained(), "\n"); !strings.Contains(told, "wiped: D11 (system), U1 (ephemeral), U3 (storage); kept: U2 (userVolume), U4 (unused)") {
		t.Errorf("the events don't say what is wiped and kept: %s", told)
	}
}

func TestNothingIsWipedWhereTheDisksArentAsNamed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*v1alpha1.TalosMachine)
		says   string
	}{
		"it runs from another disk than was approved": {func(m *v1alpha1.TalosMachine) { m.Spec.Disks[0].Match = v1alpha1.DiskMatch{Serial: "OTHER"} }, "serial OTHER"},
		"a disk that was named isn't there": {func(m *v1alpha1.TalosMachine) {
			m.Spec.Removal = &v1alpha1.MachineRemoval{WipeDisks: []v1alpha1.DiskMatch{{Serial: "GONE"}}}
		}, "serial GONE"},
		"the system disk was named besides": {func(m *v1alpha1.TalosMachine) {
			m.Spec.Removal = &v1alpha1.MachineRemoval{WipeDisks: []v1alpha1.DiskMatch{{Serial: "D11"}}}
		}, "system disk"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			machine := s.add(11)
			s.settle(machine)
			s.changeMachine(machine, tc.change)
			s.changeMachine(machine, deleting)
			wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonWrongDisk, tc.says)
			if s.resets(machine) != 0 || s.node("node-11").Spec.Unschedulable {
				t.Error("it was wiped, or cordoned")
			}
		})
	}
}

func TestAMachineThatIsLetGoAsItIsGetsItsNodeBack(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.drains = func() drain.Result { return held }
	s.changeMachine(machine, deleting)
	s.mustReconcile(machine)
	s.changeMachine(machine, func(m *v1alpha1.TalosMachine) { m.Spec.DeletionPolicy = v1alpha1.DeletionOrphan })
	s.mustReconcile(machine)
	if !s.let(machine) || s.resets(machine) != 0 || s.node("node-11").Spec.Unschedulable {
		t.Errorf("let go: %v, resets %d, unschedulable: %v", s.let(machine), s.resets(machine), s.node("node-11").Spec.Unschedulable)
	}
}

func TestNoControlPlaneLeavesWithoutAFreshSnapshot(t *testing.T) {
	t.Parallel()
	broken := func(state *talostest.State) { state.SnapshotErr = context.DeadlineExceeded }
	for name, tc := range map[string]struct {
		change func(*stack, []string)
	}{
		"it is told": {change: func(s *stack, names []string) { s.machines[names[0]].Do(broken) }},
		"it is given up": {change: func(s *stack, names []string) {
			s.machines[names[0]].Do(off)
			s.changeMachine(names[0], forcing)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			names := s.controlPlanes(11, 12, 13)
			s.changeMachine(names[0], func(m *v1alpha1.TalosMachine) { m.Status.EtcdMemberID = "1" })
			for _, other := range names[1:] {
				s.machines[other].Do(broken)
			}
			tc.change(s, names)
			s.changeMachine(names[0], deleting)
			wantCondition(t, s.mustReconcile(names[0]), v1alpha1.ConditionReady, metav1.ConditionFalse, reasonNoSnapshot, "no fresh snapshot")
			if len(s.machines[names[1]].Snapshot().Members) != 3 || s.resets(names[0]) != 0 || s.let(names[0]) {
				t.Error("it left etcd")
			}
			for _, each := range names {
				s.machines[each].Do(func(state *talostest.State) { state.SnapshotErr = nil })
			}
			for range 3 {
				if !s.let(names[0]) {
					s.mustReconcile(names[0])
				}
			}
			if !s.let(names[0]) {
				t.Errorf("still held: %s", describeConditions(s.get(names[0])))
			}
		})
	}
}

func TestARemovalGoesOnWhereverTheControllerIsKilled(t *testing.T) {
	t.Parallel()
	for kill := 1; kill <= 6; kill++ {
		t.Run("at write "+string(rune('0'+kill)), func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			names := s.controlPlanes(11, 12, 13)
			s.changeMachine(names[0], deleting)
			known := true
			s.machines[names[0]].Do(func(state *talostest.State) {
				state.OnReset = func() {
					m := s.get(names[0])
					known = known && leaving(m) && m.Status.Removal != nil && len(m.Status.Removal.Disks) > 0 && m.Status.Removal.DrainedAt != nil
				}
			})
			s.start(kill)
			for range 3 {
				_, _ = s.reconcile(names[0])
			}
			s.start(0)
			if node := s.node("node-11"); node != nil && s.resets(names[0]) > 0 { // its kubelet is gone
				node.Status.Conditions[0].Status = corev1.ConditionUnknown
				if _, err := s.kube.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			for range 4 {
				if !s.let(names[0]) {
					s.mustReconcile(names[0])
					s.clock.Step(resetPatience + time.Second)
				}
			}
			if s.resets(names[0]) != 1 || !s.let(names[0]) || !known {
				t.Errorf("resets %d, let go: %v, on record before: %v; %s", s.resets(names[0]), s.let(names[0]), known, describeConditions(s.get(names[0])))
			}
		})
	}
}
