// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos/talostest"
)

// shutdowns are how often each machine was told to shut down.
func (r *rig) shutdowns() map[string]int {
	out := map[string]int{}
	for name, machine := range r.node {
		if n := machine.Snapshot().Shutdowns; n > 0 {
			out[name] = n
		}
	}
	return out
}

// powerOn powers machines on, which boot anew.
func (r *rig) powerOn(names ...string) {
	for _, name := range names {
		r.node[name].Do(func(s *talostest.State) { s.Mode, s.BootID = talostest.Configured, "boot-2" })
	}
}

func shutdownAll(spec *v1alpha1.TalosOperationSpec) {
	spec.Shutdown = &v1alpha1.Shutdown{Consent: "prod"}
}

func shutdownOf(names ...string) func(*v1alpha1.TalosOperationSpec) {
	return func(spec *v1alpha1.TalosOperationSpec) {
		spec.Shutdown, spec.Machines = &v1alpha1.Shutdown{}, &v1alpha1.OperationMachines{Names: names}
	}
}

func TestAWholeClusterIsShutDownWorkersFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 2)
	r.create("off", shutdownAll)
	r.run("off", func(o *v1alpha1.TalosOperation) bool {
		told := r.shutdowns()
		if told["cp-1"]+told["cp-2"]+told["cp-3"] > 0 && (told["worker-1"] != 1 || told["worker-2"] != 1) {
			t.Fatalf("told %v", told)
		}
		if told["cp-1"] > 0 && !maps.Equal(told, once) {
			t.Fatalf("told %v: the control planes weren't told in one go", told)
		}
		return o.Status.Phase == v1alpha1.OperationSucceeded
	})
	if !maps.Equal(r.shutdowns(), once) || len(r.drainer.drained) > 0 {
		t.Errorf("told %v, drained %v", r.shutdowns(), r.drainer.drained)
	}
	r.asItWas()
}

// The API goes with the control planes, and the controller with it: when they are powered on again, the operation is found
// finished, and nothing is shut down that somebody has powered on, or that wasn't told in time.
func TestAClusterThatIsPoweredOnAgainStaysOn(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{"soon": 2 * time.Minute, "later": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			staysOn(t, after)
		})
	}
}

func staysOn(t *testing.T, after time.Duration) {
	t.Helper()
	r := newRig(t, 3, 1)
	r.create("off", shutdownAll)
	r.run("off", func(*v1alpha1.TalosOperation) bool { return len(r.shutdowns()) == 4 })
	// Of what the control planes were told nothing was written any more; one of them never heard it.
	operation := r.operation("off")
	for i := range operation.Status.Machines {
		if m := &operation.Status.Machines[i]; strings.HasPrefix(m.Name, "cp") {
			m.State, m.Done = v1alpha1.StepIntended, false
		}
	}
	r.deeds.Forget(operation.UID)
	if _, err := r.api.IchorV1alpha1().TalosOperations().UpdateStatus(context.Background(), operation, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := r.shutdowns()
	r.clock.Step(after)
	r.powerOn("cp-1", "cp-2", "worker-1")
	r.node["cp-3"].Do(func(s *talostest.State) { s.Mode = talostest.Configured })
	r.start(0)
	got := r.run("off", inPhase(v1alpha1.OperationSucceeded))
	if !maps.Equal(r.shutdowns(), before) {
		t.Errorf("told %v, and before %v", r.shutdowns(), before)
	}
	messages := map[string]string{}
	for _, m := range got.Status.Machines {
		messages[m.Name] = m.Message
	}
	if !strings.Contains(messages["cp-1"], "was off, and is back") || !strings.Contains(messages["cp-3"], "is left running") {
		t.Errorf("it says %v", messages)
	}
	r.asItWas()
}

func TestAWorkerIsShutDownDrained(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 2)
	r.create("off", shutdownOf("worker-2"))
	r.run("off", inPhase(v1alpha1.OperationSucceeded))
	if !maps.Equal(r.shutdowns(), map[string]int{"worker-2": 1}) || !slices.Equal(r.drainer.drained, []string{"worker-2"}) {
		t.Errorf("told %v, drained %v", r.shutdowns(), r.drainer.drained)
	}
	m, err := r.api.IchorV1alpha1().TalosMachines().Get(t.Context(), "worker-2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if off := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionPoweredOff); off == nil || off.Status != metav1.ConditionTrue ||
		!strings.Contains(off.Message, "by operation off") || !strings.Contains(off.Message, "2026-03-01T12:") {
		t.Errorf("of the machine that is off on purpose it says %+v", off)
	}
	r.asItWas()
}

func TestAControlPlaneThatEtcdNeedsIsNotShutDown(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 0)
	r.create("one", shutdownOf("cp-1"))
	r.run("one", inPhase(v1alpha1.OperationSucceeded))
	r.ready("cp-1", false)
	r.create("two", shutdownOf("cp-2"))
	r.run("two", func(o *v1alpha1.TalosOperation) bool {
		return strings.Contains(o.Status.Message, "control plane cp-1 is not Ready")
	})
	if !maps.Equal(r.shutdowns(), map[string]int{"cp-1": 1}) {
		t.Errorf("told %v", r.shutdowns())
	}
}

// A machine that can't be told keeps a cluster from nothing.
func TestAClusterIsShutDownThoughAMachineIsDead(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 2)
	r.node["worker-1"].Do(func(s *talostest.State) { s.Mode = talostest.Off })
	r.create("off", shutdownAll)
	got := r.run("off", inPhase(v1alpha1.OperationSucceeded))
	for _, record := range got.Status.Machines {
		if left := len(record.LeftOut); left != 0 != (record.Name == "worker-1") {
			t.Errorf("%s was left out of %+v", record.Name, record.LeftOut)
		}
	}
	if !maps.Equal(r.shutdowns(), map[string]int{"cp-1": 1, "cp-2": 1, "cp-3": 1, "worker-2": 1}) {
		t.Errorf("told %v", r.shutdowns())
	}
}

// A controller that is killed before or after any of its writes tells no machine twice.
func TestAShutdownIsKilledAtAnyWrite(t *testing.T) {
	t.Parallel()
	for at := 1; ; at++ {
		r := newRig(t, 3, 1)
		r.create("off", shutdownAll)
		r.start(at)
		ctx, died := context.Background(), false
		for looks := 0; !isOver(r.operation("off")); looks++ {
			if err := r.look(ctx); err != nil {
				if !strings.Contains(err.Error(), errDead.Error()) {
					t.Fatalf("killed at %d: %v", at, err)
				}
				died = true
				r.start(0)
			}
			if looks > 200 {
				t.Fatalf("killed at %d: never ends: %s", at, r.operation("off").Status.Message)
			}
		}
		if err := r.look(ctx); err != nil {
			died = true
			r.start(0)
		}
		if want := map[string]int{"cp-1": 1, "cp-2": 1, "cp-3": 1, "worker-1": 1}; !maps.Equal(r.shutdowns(), want) {
			t.Fatalf("killed at %d: told %v", at, r.shutdowns())
		}
		r.asItWas()
		if !died {
			break
		}
	}
}

// A controller that is killed doesn't know what it told. The cluster isn't given to others while a machine may be going down.
func TestAShutdownThatIsCancelledRightAfterAKill(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 0)
	r.create("off", shutdownOf("cp-1"))
	r.create("on", func(spec *v1alpha1.TalosOperationSpec) {
		rebootAll(spec)
		spec.Machines = &v1alpha1.OperationMachines{Names: []string{"cp-2"}}
	})
	r.run("off", func(*v1alpha1.TalosOperation) bool { return r.shutdowns()["cp-1"] == 1 })
	r.node["cp-1"].Do(func(s *talostest.State) { s.Mode = talostest.Configured }) // it takes its time
	operation := r.operation("off")
	operation.Status.Machines[0].State = v1alpha1.StepIntended
	r.deeds.Forget(operation.UID)
	if _, err := r.api.IchorV1alpha1().TalosOperations().UpdateStatus(t.Context(), operation, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.start(0)
	r.control("off", func(control *v1alpha1.OperationControl) { control.CancelRequested = true })
	r.looks(5)
	if len(r.reboots()) > 0 {
		t.Fatalf("rebooted %v while cp-1 may be going down", r.reboots())
	}
	r.run("off", inPhase(v1alpha1.OperationCancelled))
	r.run("on", inPhase(v1alpha1.OperationSucceeded))
	r.asItWas()
}
