// SPDX-License-Identifier: Apache-2.0

// Package operationtest holds what operations did, by their journals, against what they had planned.
package operationtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Deeds are what operations did. Each state of an operation that was stored is to be observed, in order. What is wrong is:
//   - a plan that changes once it is made, a machine that isn't in it, or one that is finished before one that comes first;
//   - a step that isn't planned, that is done before the one that comes first, or once more; but what waits for a moment to
//     begin a machine does so anew when the moment has passed;
//   - a step of which nothing was said before it was done;
//   - a planned step that was neither done nor told to be left out, or both, and a reason that is missing.
//
// The zero value is ready.
type Deeds struct {
	mu         sync.Mutex
	operations map[types.UID]*deed
}

// deed is what one operation did.
type deed struct {
	name     string
	plan     *v1alpha1.OperationPlan
	machines map[string]*trace
	// finished are machines in the order in which they were.
	finished []string
	faults   []string
	last     *v1alpha1.TalosOperation
}

// trace is what was done on one machine.
type trace struct {
	// done are the steps, in the order in which they were.
	done []string
	// intended is the step that was last said to be about to be done.
	intended string
	over     bool
}

// again are the steps that a machine goes through anew that wasn't begun in its window.
var again = []string{"Gates", "OperationGates"}

// Observe takes a stored state of an operation.
func (d *Deeds) Observe(operation *v1alpha1.TalosOperation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.operations == nil {
		d.operations = map[types.UID]*deed{}
	}
	one, known := d.operations[operation.UID]
	if !known {
		one = &deed{name: operation.Name, machines: map[string]*trace{}}
		d.operations[operation.UID] = one
	}
	one.observe(operation.DeepCopy(), !known)
}

// Forget has an operation be taken as it is when it is observed next: a test that writes a journal by hand isn't judged.
func (d *Deeds) Forget(operation types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.operations, operation)
}

// Err says what was done otherwise than it was planned, and isn't explained.
func (d *Deeds) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, one := range d.operations {
		for _, fault := range append(slices.Clone(one.faults), one.unexplained()...) {
			errs = append(errs, fmt.Errorf("operation %s: %s", one.name, fault))
		}
	}
	return errors.Join(errs...)
}

// Steps are what was done on a machine, in order.
func (d *Deeds) Steps(operation types.UID, machine string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one := d.operations[operation]; one != nil && one.machines[machine] != nil {
		return slices.Clone(one.machines[machine].done)
	}
	return nil
}

func (d *deed) fault(format string, arguments ...any) {
	d.faults = append(d.faults, fmt.Sprintf(format, arguments...))
}

func (d *deed) observe(operation *v1alpha1.TalosOperation, first bool) {
	status := &operation.Status
	switch {
	case d.plan != nil && !equality.Semantic.DeepEqual(d.plan, status.Plan):
		d.fault("its plan changed")
	case d.plan == nil:
		d.plan = status.Plan
	}
	for i := range status.Machines {
		d.machine(&status.Machines[i], first)
	}
	d.last = operation
}

func (d *deed) machine(record *v1alpha1.OperationMachineStatus, first bool) {
	planned, there := d.planned(record.Name)
	if !there {
		d.fault("%s isn't in its plan", record.Name)
		return
	}
	t := d.machines[record.Name]
	if t == nil {
		t = &trace{}
		d.machines[record.Name] = t
	}
	at := slices.Index(planned, record.Step)
	switch {
	case first && at >= 0:
		t.done = without(planned[:at], leftOut(record))
		t.intended = record.Step
	case record.Step == "":
		d.backTo(record.Name, t, 0)
	case at < 0:
		d.fault("%s: %s isn't planned", record.Name, record.Step)
		return
	}
	if record.Step != "" {
		d.step(record, t, planned, at)
	}
	if record.Done && !t.over {
		t.over = true
		d.finished = append(d.finished, record.Name)
	}
}

// step takes the step that a machine is at.
func (d *deed) step(record *v1alpha1.OperationMachineStatus, t *trace, planned []string, at int) {
	if last := d.reached(t, planned); at < last {
		d.backTo(record.Name, t, at+1)
	}
	if record.State != v1alpha1.StepVerified {
		t.intended = record.Step
		return
	}
	if slices.Contains(t.done, record.Step) || slices.Contains(leftOut(record), record.Step) {
		return
	}
	if t.intended != record.Step {
		d.fault("%s: %s was done, and nothing was said of it before", record.Name, record.Step)
	}
	t.done = append(t.done, record.Step)
}

// reached is the place of the last step that was done.
func (d *deed) reached(t *trace, planned []string) int {
	if len(t.done) == 0 {
		return -1
	}
	return slices.Index(planned, t.done[len(t.done)-1])
}

// backTo has a machine have done no more than the first so many steps of its plan.
func (d *deed) backTo(name string, t *trace, count int) {
	planned, _ := d.planned(name)
	for len(t.done) > 0 && d.reached(t, planned) >= count {
		last := t.done[len(t.done)-1]
		if !slices.Contains(again, last) {
			d.fault("%s: %s was done, and the machine went back to before it", name, last)
		}
		t.done = t.done[:len(t.done)-1]
	}
}

// unexplained is what differs from the plan at the end of an operation without a word of it.
func (d *deed) unexplained() []string {
	if d.plan == nil || d.last == nil {
		return nil
	}
	var faults []string
	phase := d.last.Status.Phase
	order := 0
	for _, planned := range d.plan.Machines {
		record := recordOf(d.last, planned.Name)
		if record == nil || !record.Done {
			if phase == v1alpha1.OperationSucceeded && d.last.Spec.Mode != v1alpha1.OperationModePlan {
				faults = append(faults, planned.Name+" isn't done, and the operation has succeeded")
			}
			if record == nil {
				continue
			}
		}
		faults = append(faults, d.differs(record, planned.Steps, phase)...)
		if record.Done && len(record.LeftOut) == 0 {
			place := slices.Index(d.finished, record.Name)
			if place < order {
				faults = append(faults, planned.Name+" was finished before one that comes first")
			}
			order = max(order, place)
		}
	}
	return faults
}

// differs compares what was done on a machine, and what was left out, with its plan.
func (d *deed) differs(record *v1alpha1.OperationMachineStatus, planned []string, phase v1alpha1.OperationPhase) []string {
	var faults []string
	left := leftOut(record)
	for _, each := range record.LeftOut {
		if each.Reason == "" {
			faults = append(faults, fmt.Sprintf("%s: %v are left out for no reason", record.Name, each.Steps))
		}
	}
	done := []string(nil)
	if t := d.machines[record.Name]; t != nil {
		done = t.done
	}
	for _, step := range left {
		if slices.Contains(done, step) {
			faults = append(faults, fmt.Sprintf("%s: %s was done, and is told to be left out", record.Name, step))
		}
	}
	expected := without(planned, left)
	stopped := phase == v1alpha1.OperationCancelled && d.last.Status.Current == "" && len(record.LeftOut) == 0
	if !record.Done && (phase != v1alpha1.OperationCancelled || stopped) {
		// It has come so far, or the operation was cancelled while it waited for its turn: the record says where it is.
		expected = expected[:min(len(done), len(expected))]
	}
	if !slices.Equal(done, expected) {
		faults = append(faults, fmt.Sprintf("%s: done was %v, planned %v, left out %v", record.Name, done, planned, left))
	}
	return faults
}

func (d *deed) planned(name string) ([]string, bool) {
	if d.plan == nil {
		return nil, false
	}
	for _, planned := range d.plan.Machines {
		if planned.Name == name {
			return planned.Steps, true
		}
	}
	return nil, false
}

func recordOf(operation *v1alpha1.TalosOperation, name string) *v1alpha1.OperationMachineStatus {
	for i := range operation.Status.Machines {
		if record := &operation.Status.Machines[i]; record.Name == name {
			return record
		}
	}
	return nil
}

func leftOut(record *v1alpha1.OperationMachineStatus) []string {
	var steps []string
	for _, each := range record.LeftOut {
		steps = append(steps, each.Steps...)
	}
	return steps
}

func without(steps, left []string) []string {
	return slices.DeleteFunc(slices.Clone(steps), func(step string) bool { return slices.Contains(left, step) })
}

// Phase is the phase of an operation when it was observed last.
func (d *Deeds) Phase(operation types.UID) v1alpha1.OperationPhase {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one := d.operations[operation]; one != nil && one.last != nil {
		return one.last.Status.Phase
	}
	return ""
}
