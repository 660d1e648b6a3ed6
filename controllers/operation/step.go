// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// outcome is how far an attempt brought a step.
type outcome struct {
	// done: the goal of the step is reached.
	done bool
	// acted: something was set off that isn't to be set off again; what comes of it is waited for.
	acted bool
	// passedOver: the goal of the step isn't reached, and the operation goes on without it, for the reason in message.
	passedOver bool
	// needless: nothing is left to do on the machine, for the reason in message. What was put aside is put back.
	needless bool
	// unreachable: the machine couldn't be asked.
	unreachable bool
	// early: the machine isn't to be begun yet, and nothing was put aside.
	early bool
	// failed: the step can't be done until a person has done something, as message says.
	failed bool
	// message says for people what was done, or what is waited for.
	message string
	// again is when to try again, if that isn't soon.
	again time.Duration
}

func waiting(format string, arguments ...any) (outcome, error) {
	return outcome{message: fmt.Sprintf(format, arguments...)}, nil
}

func failed(format string, arguments ...any) (outcome, error) {
	return outcome{failed: true, message: fmt.Sprintf(format, arguments...)}, nil
}

// done is the outcome of a step whose goal is reached.
func done(format string, arguments ...any) (outcome, error) {
	return outcome{done: true, message: fmt.Sprintf(format, arguments...)}, nil
}

// passedOver is the outcome of a step that an operation goes on without.
func passedOver(format string, arguments ...any) (outcome, error) {
	return outcome{done: true, passedOver: true, message: fmt.Sprintf(format, arguments...)}, nil
}

// visit is an attempt at one step of one machine.
type visit struct {
	*run
	m *v1alpha1.TalosMachine
	// record is the machine's place in the journal.
	record *v1alpha1.OperationMachineStatus
}

// step is something to do on a machine. Its intent is in the journal before it is tried. It is tried until it is done, also
// by another process after a crash, so an attempt finds out what is left to do by itself.
type step struct {
	// try brings the step on. An error is about what is asked, not about the machine: it is tried again later.
	try func(*visit, context.Context) (outcome, error)
	// patience is how long the step may take until a person is called.
	patience func(r *run) time.Duration
	// waits is set where nothing is being done meanwhile: the operation is Waiting.
	waits bool
	// finishes is set where a cancelled operation lets the step come to its end: the machine is on its way. It goes on to the
	// next step, unless then is set.
	finishes, then bool
}

func lasting(d time.Duration) func(*run) time.Duration { return func(*run) time.Duration { return d } }

// step moves the machine that is worked on by one transition, or says what it waits for.
func (r *run) step(ctx context.Context, record *v1alpha1.OperationMachineStatus) error {
	planned := r.planned(record.Name)
	next, ended := r.nextStep(record, planned)
	if r.cancelled() && !r.goesOn(record) && record.Step != stepUncordon {
		r.cut(record, planned)
	}
	if ended {
		r.finish(record)
		return nil
	}
	if record.State == v1alpha1.StepVerified && r.kind().isRound(record.Step) && r.upNext() != record.Name && !r.cancelled() {
		r.putDown(record)
		return nil
	}
	if next != record.Step || record.State == "" || record.State == v1alpha1.StepVerified {
		r.intend(record, next)
		return nil
	}
	if record.State == v1alpha1.StepFailed {
		r.enter(v1alpha1.OperationPaused, "%s: %s: %s; resume the operation to try again, or cancel it", record.Name, record.Step, record.Message)
		r.after = pollQueued
		return nil
	}
	return r.attempt(ctx, record)
}

func (r *run) planned(name string) []string {
	for i := range r.op.Status.Plan.Machines {
		if planned := &r.op.Status.Plan.Machines[i]; planned.Name == name {
			return planned.Steps
		}
	}
	return nil
}

// plannedMachine is the machine's part of the plan.
func (v *visit) plannedMachine() v1alpha1.PlannedMachine {
	at := slices.IndexFunc(v.op.Status.Plan.Machines, func(planned v1alpha1.PlannedMachine) bool { return planned.Name == v.m.Name })
	if at < 0 {
		return v1alpha1.PlannedMachine{Name: v.m.Name}
	}
	return v.op.Status.Plan.Machines[at]
}

// nextStep is the step that a machine is at, or comes to. A cancelled operation lets a machine come back that is about to
// reboot, and puts back what it put aside.
func (r *run) nextStep(record *v1alpha1.OperationMachineStatus, planned []string) (next string, ended bool) {
	if r.cancelled() && !r.goesOn(record) {
		planned = []string{stepUncordon}
		if record.Step != stepUncordon {
			return stepUncordon, r.kind().harmless(record.Step)
		}
	}
	at := slices.Index(planned, record.Step)
	if record.State == v1alpha1.StepVerified || record.Step == "" {
		at++
	}
	if at >= len(planned) {
		return "", true
	}
	return planned[max(at, 0)], false
}

// goesOn tells whether a cancelled operation lets a machine go on: it is on its way, and not safely stopped.
func (r *run) goesOn(record *v1alpha1.OperationMachineStatus) bool {
	step := r.kind().stepOf(record.Step)
	return step.finishes && record.State != v1alpha1.StepFailed && !(step.then && record.State == v1alpha1.StepVerified)
}

// intend writes down that a step is about to be done.
func (r *run) intend(record *v1alpha1.OperationMachineStatus, name string) {
	r.mark(record, name, v1alpha1.StepIntended, "")
	r.enter(r.phaseOf(name), "%s: %s", record.Name, name)
}

func (r *run) phaseOf(step string) v1alpha1.OperationPhase {
	if r.kind().stepOf(step).waits {
		return v1alpha1.OperationWaiting
	}
	return v1alpha1.OperationRunning
}

// kind is the operation's kind.
func (r *run) kind() kind {
	kind, _ := kindOf(&r.op.Spec)
	return kind
}

// visit looks the machine up; nil if it is no member of the cluster any more.
func (r *run) visit(record *v1alpha1.OperationMachineStatus) (*visit, error) {
	m, err := r.machines.Get(record.Name)
	switch {
	case apierrors.IsNotFound(err) || err == nil && !isMember(m, r.cluster):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read machine %s: %w", record.Name, err)
	}
	return &visit{run: r, m: m, record: record}, nil
}

// attempt tries the step that is intended, or looks what came of it.
func (r *run) attempt(ctx context.Context, record *v1alpha1.OperationMachineStatus) error {
	v, err := r.visit(record)
	if err != nil {
		return err
	}
	if v == nil {
		return r.leftOut(ctx, record)
	}
	step := r.kind().stepOf(record.Step)
	came, err := r.try(ctx, v, step)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		came = &outcome{message: err.Error()}
	}
	if came == nil {
		return nil
	}
	switch {
	case came.passedOver:
		leaveOut(record, []string{record.Step}, came.message)
		r.mark(record, record.Step, v1alpha1.StepVerified, came.message)
	case came.done:
		r.mark(record, record.Step, v1alpha1.StepVerified, came.message)
	case came.early:
		r.beforeBegun(record)
		record.Message = came.message
		r.op.Status.Current = ""
		r.enter(v1alpha1.OperationWaiting, "%s", came.message)
	case came.needless:
		r.skip(record, came.message)
	case came.failed:
		r.fail(record, came.message)
	case came.acted:
		r.mark(record, record.Step, v1alpha1.StepActed, came.message)
		r.after = pollStep
	case r.lasted(record) > step.patience(r):
		r.fail(record, fmt.Sprintf("not done after %s: %s", step.patience(r), came.message))
	default:
		record.Message = came.message
		r.enter(r.phaseOf(record.Step), "%s: %s: %s", record.Name, record.Step, came.message)
		r.after = max(came.again, pollStep)
	}
	return nil
}

// lasted is how long a step has been in its state while somebody worked on it.
func (r *run) lasted(record *v1alpha1.OperationMachineStatus) time.Duration {
	if record.At == nil {
		return 0
	}
	since := record.At.Time
	if r.started.After(since) {
		since = r.started
	}
	return r.now.Sub(since)
}

// leftOut ends the work on a machine that left the cluster meanwhile: whoever removed it has seen to it.
func (r *run) leftOut(ctx context.Context, record *v1alpha1.OperationMachineStatus) error {
	if err := r.uncordonAll(ctx, r.op.UID); err != nil {
		return err
	}
	record.Cordoned = false
	why := fmt.Sprintf("the machine isn't one of cluster %s any more", r.cluster.Name)
	r.tell(corev1.EventTypeWarning, "MachineLeftOut", "%s: %s: %s, and is left out", record.Name, record.Step, why)
	leaveOut(record, ahead(record, r.planned(record.Name)), why)
	r.mark(record, record.Step, record.State, why)
	r.finish(record)
	return nil
}

// try is an attempt. Before the step that a reboot counts from, the machine's boot id is written down; nothing else comes
// of that attempt.
func (r *run) try(ctx context.Context, v *visit, step step) (*outcome, error) {
	if v.record.BootID == "" && v.record.Step == r.kind().bootMark {
		id, err := v.bootID(ctx)
		if err == nil {
			v.record.BootID = id
			return nil, nil
		}
		return &outcome{message: fmt.Sprintf("its boot id can't be read: %s", err)}, nil
	}
	came, err := step.try(v, ctx)
	return &came, err
}

func (r *run) fail(record *v1alpha1.OperationMachineStatus, message string) {
	r.mark(record, record.Step, v1alpha1.StepFailed, message)
	if r.op.Status.Current == "" {
		return // one of several machines; whoever looks at all of them tells
	}
	r.enter(v1alpha1.OperationPaused, "%s: %s: %s; resume the operation to try again, or cancel it", record.Name, record.Step, message)
}

// skip leaves the rest of a machine's steps out, but for putting back what was put aside.
func (r *run) skip(record *v1alpha1.OperationMachineStatus, why string) {
	planned := r.planned(record.Name)
	back := slices.Index(planned, stepUncordon)
	if back < 0 {
		back = len(planned)
	}
	before := max(back-1, 0)
	r.tell(corev1.EventTypeNormal, "StepsSkipped", "%s: %s: the steps up to %s are left out: %s", record.Name, record.Step, planned[before], why)
	leaveOut(record, upTo(ahead(record, planned), planned[before]), why)
	r.mark(record, planned[before], v1alpha1.StepVerified, why)
}

// finish ends the work on a machine.
func (r *run) finish(record *v1alpha1.OperationMachineStatus) {
	r.op.Status.Current = ""
	if r.cancelled() {
		r.enter(v1alpha1.OperationCancelled, "cancelled by %s, at %s (%s)", r.op.Spec.Control.By, record.Name, record.Step)
		return
	}
	record.Done, record.FinishedAt = true, &r.now
	r.op.Status.Done++
	r.enter(v1alpha1.OperationRunning, "%s is done, %d of %d", record.Name, r.op.Status.Done, r.op.Status.Total)
}

// gatePatience is the longest time that any of the gates may take.
func gatePatience(r *run) time.Duration {
	var longest time.Duration
	for _, gate := range r.op.Spec.Gates {
		longest = max(longest, gateTimeout(&gate))
	}
	return longest + time.Minute
}

// drainPatience is how long a drain may take.
func drainPatience(r *run) time.Duration {
	if timeout := r.op.Spec.Drain.Timeout; timeout != nil {
		return timeout.Duration
	}
	return 10 * time.Minute
}
