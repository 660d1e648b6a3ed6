// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/controllers/drain"
	"maesh.dev/ichor/controllers/operation/gates"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos/talostest"
)

func atStep(machine int, step string) func(*v1alpha1.TalosOperation) bool {
	return func(o *v1alpha1.TalosOperation) bool {
		return len(o.Status.Machines) > machine && o.Status.Machines[machine].Step == step && o.Status.Machines[machine].State != v1alpha1.StepVerified
	}
}

// looks lets some time pass.
func (r *rig) looks(count int) {
	r.t.Helper()
	for range count {
		if err := r.look(context.Background()); err != nil {
			r.t.Fatal(err)
		}
		r.comeBack(context.Background())
	}
}

func TestAMachineThatLeavesTheClusterIsLeftOut(t *testing.T) {
	t.Parallel()
	for _, cancelled := range []bool{false, true} {
		r := newRig(t, 1, 2)
		r.drainer.blockers["worker-1"] = []drain.Blocker{{Name: "pod a/b"}}
		r.create("all", rebootAll)
		r.run("all", atStep(1, stepDrain))
		if err := r.api.IchorV1alpha1().TalosMachines().Delete(t.Context(), "worker-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		want, reboots := v1alpha1.OperationSucceeded, map[string]int{"cp-1": 1, "worker-2": 1}
		if cancelled {
			r.control("all", func(control *v1alpha1.OperationControl) { control.CancelRequested = true })
			want, reboots = v1alpha1.OperationCancelled, map[string]int{"cp-1": 1}
		}
		// The Node carries the operation's mark, as the drainer of the test doesn't show.
		node, err := r.kube.CoreV1().Nodes().Get(t.Context(), "worker-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		node.Annotations = map[string]string{v1alpha1.CordonedByAnnotation: "all"}
		if _, err := r.kube.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.run("all", inPhase(want))
		if !maps.Equal(r.reboots(), reboots) {
			t.Errorf("cancelled %v: rebooted %v", cancelled, r.reboots())
		}
		r.asItWas()
	}
}

func TestAMachineThatIgnoresARebootIsOnlyToldAgainThroughTheGates(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 0)
	r.node["cp-1"].Do(func(s *talostest.State) { s.OnReboot = nil })
	r.create("all", rebootAll)
	r.run("all", func(*v1alpha1.TalosOperation) bool { return r.reboots()["cp-1"] == 1 })
	r.node["cp-2"].Do(func(s *talostest.State) { s.Mode = talostest.Off })
	r.looks(60)
	if r.reboots()["cp-1"] != 1 {
		t.Errorf("it was told to reboot %d times, though etcd has no quorum without it", r.reboots()["cp-1"])
	}
	r.node["cp-2"].Do(func(s *talostest.State) { s.Mode = talostest.Configured })
	r.node["cp-1"].Do(func(s *talostest.State) {
		s.OnReboot = func(s *talostest.State) { r.goDown("cp-1", v1alpha1.RoleControlPlane, s) }
	})
	r.run("all", inPhase(v1alpha1.OperationSucceeded))
	if r.reboots()["cp-1"] != 2 || r.worst != 1 {
		t.Errorf("rebooted %v", r.reboots())
	}
	r.asItWas()
}

func TestWhatIsAskedOnceMoreBeforeTheReboot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change, mend func(*rig)
		why          string
	}{
		"the gates": {
			func(r *rig) { r.ready("cp-2", false) }, func(r *rig) { r.ready("cp-2", true) }, "cp-2 is not Ready",
		},
		"the snapshot": {
			func(r *rig) {
				r.node["cp-1"].Do(func(s *talostest.State) { s.SnapshotErr = errors.New("it broke off") })
			},
			func(r *rig) { r.node["cp-1"].Do(func(s *talostest.State) { s.SnapshotErr = nil }) }, "no fresh snapshot",
		},
		"the lock": {
			func(r *rig) { r.change("cp-1", func(m *v1alpha1.TalosMachine) { m.Spec.Locked = true }) },
			func(r *rig) { r.change("cp-1", func(m *v1alpha1.TalosMachine) { m.Spec.Locked = false }) }, "spec.locked",
		},
	} {
		for _, cancel := range []bool{false, true} {
			r := newRig(t, 3, 0)
			r.drainer.blockers["cp-1"] = []drain.Blocker{{Name: "pod a/b"}}
			r.create("one", func(spec *v1alpha1.TalosOperationSpec) {
				rebootAll(spec)
				spec.Machines = &v1alpha1.OperationMachines{Names: []string{"cp-1"}}
			})
			r.run("one", atStep(0, stepDrain))
			c.change(r)
			delete(r.drainer.blockers, "cp-1")
			r.run("one", func(o *v1alpha1.TalosOperation) bool {
				return atStep(0, stepReboot)(o) && strings.Contains(o.Status.Message, c.why)
			})
			want := 1
			if cancel {
				// Nobody told the machine yet, and nobody does any more.
				r.control("one", func(control *v1alpha1.OperationControl) { control.CancelRequested = true })
				c.mend(r)
				r.run("one", inPhase(v1alpha1.OperationCancelled))
				want = 0
			} else {
				c.mend(r)
				r.run("one", inPhase(v1alpha1.OperationSucceeded))
			}
			if r.reboots()["cp-1"] != want {
				t.Errorf("%s, cancelled %v: rebooted %v", name, cancel, r.reboots())
			}
			r.asItWas()
		}
	}
}

func TestAConfigurationThatIsDecidedAnewAfterItWasStaged(t *testing.T) {
	t.Parallel()
	for _, cancel := range []bool{false, true} {
		r := newRig(t, 3, 0)
		r.change("cp-1", func(m *v1alpha1.TalosMachine) { m.Status.Config = &v1alpha1.MachineConfigStatus{PendingReboot: true} })
		r.create("roll", func(spec *v1alpha1.TalosOperationSpec) { spec.ConfigRollout = &v1alpha1.ConfigRollout{} })
		r.node["cp-1"].Do(func(s *talostest.State) {
			s.Etcd.Leader, s.Members = 1, s.Members[:3]
			s.RebootErr = errors.New("busy")
		})
		r.run("roll", atStep(0, stepReboot))
		if string(r.node["cp-1"].Snapshot().Staged) != "new" {
			t.Fatal("nothing is staged")
		}
		r.rendered = "newer"
		if cancel {
			r.control("roll", func(control *v1alpha1.OperationControl) { control.CancelRequested = true })
			r.run("roll", inPhase(v1alpha1.OperationCancelled))
			if state := r.node["cp-1"].Snapshot(); state.Staged != nil || state.Reboots > 0 {
				t.Errorf("%q is left for the next boot, and it rebooted %d times", state.Staged, state.Reboots)
			}
		} else {
			r.node["cp-1"].Do(func(s *talostest.State) { s.RebootErr = nil })
			r.run("roll", inPhase(v1alpha1.OperationSucceeded))
			if got := string(r.node["cp-1"].Snapshot().Config); got != "newer" {
				t.Errorf("it runs %q", got)
			}
		}
		r.asItWas()
	}
}

func TestAnOperationThatWaitsForItsWindowLetsOthersPass(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 0)
	window := []v1alpha1.OperationWindow{{Schedule: "0 13 * * *", Duration: metav1.Duration{Duration: time.Hour}}} // it is twelve
	r.create("first", func(spec *v1alpha1.TalosOperationSpec) { rebootAll(spec); spec.Windows = window })
	got := r.run("first", inPhase(v1alpha1.OperationWaiting))
	if !strings.Contains(got.Status.Message, "2026-03-01T13:00:00Z") || got.Status.StartedAt != nil {
		t.Errorf("it says %q, and began at %v", got.Status.Message, got.Status.StartedAt)
	}
	r.asItWas()
	r.clock.Step(time.Second)
	r.create("second", func(spec *v1alpha1.TalosOperationSpec) {
		rebootAll(spec)
		spec.Machines = &v1alpha1.OperationMachines{Names: []string{"cp-2"}}
	})
	r.run("second", inPhase(v1alpha1.OperationSucceeded))
	if want := map[string]int{"cp-2": 1}; !maps.Equal(r.reboots(), want) {
		t.Errorf("rebooted %v", r.reboots())
	}
	r.run("first", inPhase(v1alpha1.OperationSucceeded))
	if want := map[string]int{"cp-1": 1, "cp-2": 2, "cp-3": 1}; !maps.Equal(r.reboots(), want) {
		t.Errorf("rebooted %v", r.reboots())
	}
	r.asItWas()
}

// A machine whose gates open only after the window is not begun.
func TestGatesThatOpenAfterTheWindow(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 0)
	r.gates["slow"] = gates.Result{State: gates.Waiting, Message: "gate slow: not yet"}
	r.create("one", func(spec *v1alpha1.TalosOperationSpec) {
		rebootAll(spec)
		spec.Windows = []v1alpha1.OperationWindow{{Schedule: "0 12 * * *", Duration: metav1.Duration{Duration: 5 * time.Minute}}}
		spec.Gates = []v1alpha1.OperationGate{{Name: "slow"}}
	})
	r.run("one", func(o *v1alpha1.TalosOperation) bool { return strings.Contains(o.Status.Message, "not yet") })
	r.clock.Step(10 * time.Minute)
	r.gates["slow"] = gates.Result{State: gates.Opened}
	got := r.run("one", func(o *v1alpha1.TalosOperation) bool { return strings.Contains(o.Status.Message, "window") })
	r.looks(10)
	if len(r.reboots()) > 0 || got.Status.Current != "" {
		t.Errorf("it is at %q, and rebooted %v", got.Status.Current, r.reboots())
	}
	r.asItWas()
}

func TestAClaimThatNobodyStandsBehindIsGivenBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 0)
	clusters := r.api.IchorV1alpha1().TalosClusters()
	cluster, err := clusters.Get(t.Context(), "prod", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Status.ActiveOperation = &v1alpha1.ActiveOperation{Name: "gone", UID: "gone"}
	if _, err := clusters.UpdateStatus(t.Context(), cluster, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.sync()
	if _, err := r.controller.Reconcile(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	r.asItWas()
}

// Control planes that wait to be removed until the operation has ended don't hold it up.
func TestAControlPlaneThatWaitsToBeRemovedHoldsNothingUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 0)
	r.change("cp-3", func(m *v1alpha1.TalosMachine) {
		m.DeletionTimestamp, m.Finalizers = &metav1.Time{Time: r.clock.Now()}, []string{v1alpha1.MachineFinalizer}
		m.Status.Conditions[0].Status = metav1.ConditionFalse
	})
	r.create("all", rebootAll)
	r.run("all", inPhase(v1alpha1.OperationSucceeded))
	if want := map[string]int{"cp-1": 1, "cp-2": 1}; !maps.Equal(r.reboots(), want) {
		t.Errorf("rebooted %v", r.reboots())
	}
	r.asItWas()
}

func TestWhatTheAPIRefusesIsSaid(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 0)
	r.drainer.check = func() error { return errors.New("nodes is forbidden") }
	r.create("all", rebootAll)
	r.run("all", func(o *v1alpha1.TalosOperation) bool { return strings.Contains(o.Status.Message, "nodes is forbidden") })
	r.run("all", inPhase(v1alpha1.OperationPaused))
	r.drainer.check = r.alive
	r.control("all", func(control *v1alpha1.OperationControl) { control.ResumeRequests++ })
	r.run("all", inPhase(v1alpha1.OperationSucceeded))
	r.asItWas()
}

func TestWordsAloneAreNotWrittenAllTheTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 0)
	r.drainer.blockers["cp-1"] = []drain.Blocker{{Name: "pod a/b"}}
	r.create("all", rebootAll)
	r.run("all", atStep(0, stepDrain))
	before := r.operation("all")
	for i := range 4 {
		r.drainer.blockers["cp-1"] = []drain.Blocker{{Name: "pod a/b", Message: "terminating since " + strings.Repeat("x", i), Reason: drain.Ending}}
		if _, err := r.controller.Reconcile(t.Context(), "all"); err != nil {
			t.Fatal(err)
		}
		r.clock.Step(time.Second)
	}
	writes := 0
	for _, action := range r.api.Actions() {
		if action.GetVerb() == "update" && action.GetResource().Resource == "talosoperations" {
			writes++
		}
	}
	r.clock.Step(wordsEvery)
	if _, err := r.controller.Reconcile(t.Context(), "all"); err != nil {
		t.Fatal(err)
	}
	after := r.operation("all")
	if after.Status.Message == before.Status.Message {
		t.Error("the new words were never written")
	}
	total := 0
	for _, action := range r.api.Actions() {
		if action.GetVerb() == "update" && action.GetResource().Resource == "talosoperations" {
			total++
		}
	}
	if total != writes+1 {
		t.Errorf("%d writes of words alone within a few seconds, want none, and one later", total-writes-1)
	}
}
