// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func minutesAgo(minutes int) *metav1.Time {
	at := metav1.NewTime(now.Add(-time.Duration(minutes) * time.Minute))
	return &at
}

// rebooting is an operation on so many machines, of which some are done and the next one drains.
func rebooting(machines, done int) *v1alpha1.TalosOperation {
	operation := &v1alpha1.TalosOperation{
		ObjectMeta: metav1.ObjectMeta{Name: "reboot-1"},
		Spec:       v1alpha1.TalosOperationSpec{Reboot: &v1alpha1.Reboot{}},
		Status: v1alpha1.TalosOperationStatus{
			Phase: v1alpha1.OperationRunning, Done: int32(done), Total: int32(machines), StartedAt: minutesAgo(30), Plan: &v1alpha1.OperationPlan{}, //nolint:gosec // a few
		},
	}
	for n := range machines {
		name := fmt.Sprintf("m-%d", n)
		operation.Status.Plan.Machines = append(operation.Status.Plan.Machines, v1alpha1.PlannedMachine{Name: name, Steps: []string{"Gates", "Drain", "Reboot"}})
		record := v1alpha1.OperationMachineStatus{Name: name, StartedAt: minutesAgo(10), At: minutesAgo(2), Step: "Reboot", State: v1alpha1.StepVerified}
		switch {
		case n < done:
			record.Done, record.FinishedAt = true, minutesAgo(6)
		case n == done:
			operation.Status.Current = name
			record.Step, record.State, record.Message = "Drain", v1alpha1.StepIntended, "waits for pod shop/cart"
		default:
			continue
		}
		operation.Status.Machines = append(operation.Status.Machines, record)
	}
	return operation
}

func TestOperationIsDrawnMachineByMachine(t *testing.T) {
	t.Parallel()
	stuck := rebooting(3, 1)
	stuck.Status.Phase, stuck.Status.Message = v1alpha1.OperationPaused, "m-1: Drain: too long"
	stuck.Status.Machines[1].State, stuck.Status.Machines[1].Message = v1alpha1.StepFailed, "too long"
	for _, test := range []struct {
		name      string
		operation *v1alpha1.TalosOperation
		want      []string
	}{
		{"one that goes on", rebooting(3, 1), []string{
			"reboot-1  reboot  Running  1 of 3 done  30m",
			"  one  ▰▰▰  done     4m",
			"  m-1  ▰▱▱  Drain    10m  waits for pod shop/cart (for 2m)",
			"  m-2  ▱▱▱  to come",
		}},
		{"one that stopped says what to do", stuck, []string{
			"reboot-1  reboot  Paused  1 of 3 done  30m",
			"  Paused: m-1: Drain: too long",
			"  one  ▰▰▰  done          4m",
			"  m-1  ▰▱▱  Drain failed  10m  too long (for 2m)",
			"  m-2  ▱▱▱  to come",
			"  → mend what the message says, then let it try the step again: ichor operation resume reboot-1",
			"  → end it, and put back what it put aside: ichor operation cancel reboot-1",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			board := NewOperation("reboot-1", screen.Titles{"m-0": "one"}, false, "ichor")
			board.Observe(test.operation)
			if diff := cmp.Diff(test.want, board.Lines(now, screen.Plain, 0)); diff != "" {
				t.Errorf("drawn (-want +got):\n%s", diff)
			}
			if board.Done() {
				t.Error("the watching has ended")
			}
		})
	}
}

func TestManyMachinesAreDrawnAroundTheOneThatIsWorkedOn(t *testing.T) {
	t.Parallel()
	for _, done := range []int{0, 1, 50, 98, 99} {
		board := NewOperation("reboot-1", nil, false, "ichor")
		board.Observe(rebooting(100, done))
		lines := board.Lines(now, screen.Plain, 60)
		if len(lines) > shownMachines+3 {
			t.Errorf("%d done: %d lines are drawn", done, len(lines))
		}
		if text := strings.Join(lines, "\n"); !strings.Contains(text, fmt.Sprintf("  m-%d ", done)) || !strings.Contains(text, "more") {
			t.Errorf("%d done: the machine that is worked on, or how many more there are, isn't drawn:\n%s", done, text)
		}
	}
}

func TestOperationTellsNoNumberThatCountsUp(t *testing.T) {
	t.Parallel()
	board := NewOperation("reboot-1", nil, true, "ichor")
	operation := rebooting(2, 0)
	if got := board.Observe(operation); len(got) != 2 {
		t.Errorf("first told %q", got)
	}
	for _, step := range []struct {
		message string
		want    []string
	}{
		{"pod a has been terminating for 5s", []string{"m-0 Drain (Intended): pod a has been terminating for 5s"}},
		{"pod a has been terminating for 15s", nil},
		{"pod b has been terminating for 15s", []string{"m-0 Drain (Intended): pod b has been terminating for 15s"}},
	} {
		operation = operation.DeepCopy()
		operation.Status.Machines[0].Message = step.message
		if diff := cmp.Diff(step.want, board.Observe(operation)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", step.message, diff)
		}
	}
}

func TestPlanIsToldOnce(t *testing.T) {
	t.Parallel()
	operation := rebooting(2, 0)
	operation.Status.Phase, operation.Status.Message, operation.Status.Machines = v1alpha1.OperationPending, "planned: 2 machines", nil
	board := NewOperation("reboot-1", nil, true, "ichor")
	if diff := cmp.Diff([]string{"reboot-1 planned: 2 machines: m-0, m-1"}, board.Observe(operation)); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

func TestOperationThatWasJustResumedIsNotPaused(t *testing.T) {
	t.Parallel()
	operation := rebooting(2, 0)
	operation.Status.Phase, operation.Generation, operation.Status.ObservedGeneration = v1alpha1.OperationPaused, 2, 1
	board := NewOperation("reboot-1", nil, true, "ichor")
	board.Observe(operation)
	if board.Done() {
		t.Error("the watching ended with the state before the request")
	}
	operation = operation.DeepCopy()
	operation.Status.ObservedGeneration = 2
	board.Observe(operation)
	if !board.Done() {
		t.Error("the watching doesn't end though it is paused and nobody looks")
	}
}
