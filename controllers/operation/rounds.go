// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// maxTogether bounds how many machines are in a round at once.
const maxTogether = 16

// round is the round that the machines of the plan are in, and those that are yet to get through it, in order; none if
// all are through all rounds.
func (r *run) round() (round, []string) {
	for _, round := range r.kind().rounds {
		var left []string
		for _, planned := range r.op.Status.Plan.Machines {
			if !r.isThrough(planned, round.step) {
				left = append(left, planned.Name)
			}
		}
		if len(left) > 0 {
			return round, left
		}
	}
	return round{}, nil
}

// isThrough tells whether a machine has a step behind it, or none of that name ahead.
func (r *run) isThrough(planned v1alpha1.PlannedMachine, step string) bool {
	record := r.machine(planned.Name)
	goal, at := slices.Index(planned.Steps, step), slices.Index(planned.Steps, record.Step)
	return record.Done || at > goal || at == goal && record.State == v1alpha1.StepVerified || goal < 0
}

// upNext is the machine whose turn it is: the first that is yet to get through the round, or, after all rounds, to be done.
func (r *run) upNext() string {
	if _, left := r.round(); len(left) > 0 {
		return left[0]
	}
	for _, planned := range r.op.Status.Plan.Machines {
		if !r.machine(planned.Name).Done {
			return planned.Name
		}
	}
	return ""
}

// together moves the machines of a round on, as many at once as it allows. One that fails lets those finish that were begun,
// and no other begin.
func (r *run) together(ctx context.Context, round round, left []string) error {
	var failed, open []string
	begun := 0
	for _, name := range left {
		record := r.machine(name)
		if record.Step != round.step || record.State == "" {
			continue
		}
		if record.State == v1alpha1.StepFailed {
			failed = append(failed, fmt.Sprintf("%s: %s", name, record.Message))
			continue
		}
		begun++
		if err := r.attempt(ctx, record); err != nil {
			return err
		}
		switch {
		case record.Done || record.State == v1alpha1.StepVerified:
			begun--
		case record.State == v1alpha1.StepFailed:
			begun--
			failed = append(failed, fmt.Sprintf("%s: %s", name, record.Message))
		default:
			open = append(open, fmt.Sprintf("%s: %s", name, record.Message))
		}
	}
	if len(failed) == 0 {
		for _, name := range left {
			record := r.machine(name)
			if begun >= min(round.parallel, maxTogether) {
				break
			}
			if record.Step == round.step || record.Done {
				continue
			}
			begun++
			r.mark(record, round.step, v1alpha1.StepIntended, "")
		}
	}
	through := len(r.op.Status.Plan.Machines) - len(left)
	switch {
	case len(failed) > 0 && begun == 0:
		r.enter(v1alpha1.OperationPaused, "%s: %s; no machine was begun; resume the operation to try again, or cancel it", round.step, few(failed))
		r.after = pollQueued
	case len(open) > 0:
		r.enter(v1alpha1.OperationRunning, "%s: %d of %d machines: %s", round.step, through, len(r.op.Status.Plan.Machines), few(open))
		r.after = pollStep
	default:
		r.enter(v1alpha1.OperationRunning, "%s: %d of %d machines", round.step, through, len(r.op.Status.Plan.Machines))
	}
	return nil
}

// few joins some messages, and says how many more there are.
func few(messages []string) string {
	const most = 5
	if more := len(messages) - most; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(messages[:most], "; "), more)
	}
	return strings.Join(messages, "; ")
}

// putDown ends the work on a machine that is through a round which others have yet to get through.
func (r *run) putDown(record *v1alpha1.OperationMachineStatus) {
	r.op.Status.Current = ""
	r.enter(v1alpha1.OperationRunning, "%s: %s is done", record.Name, record.Step)
}

// beforeBegun is the step that a machine has behind it when it is yet to be begun: the last of its rounds.
func (r *run) beforeBegun(record *v1alpha1.OperationMachineStatus) {
	record.Step, record.State, record.At, record.StartedAt = "", "", nil, nil
	for _, name := range r.planned(record.Name) {
		if r.kind().isRound(name) {
			record.Step, record.State, record.At = name, v1alpha1.StepVerified, &r.now
		}
	}
}
