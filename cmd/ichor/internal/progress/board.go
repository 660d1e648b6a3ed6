// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/overview"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Board is what is shown of some work.
type Board interface {
	// Lines draws the work as it is now, at most width columns wide.
	Lines(now time.Time, style screen.Style, width int) []string
}

// way are the phases that a machine goes through, each a cell of the bar.
var way = []v1alpha1.MachinePhase{
	v1alpha1.PhaseApproved, v1alpha1.PhaseConfiguring, v1alpha1.PhaseInstalling, v1alpha1.PhaseRebooting,
	v1alpha1.PhaseJoining, v1alpha1.PhaseReady,
}

// machineState is what is remembered of one machine.
type machineState struct {
	title   string
	phase   v1alpha1.MachinePhase
	stage   v1alpha1.MachineStage
	waiting string
	// since is when it began to wait for that; zero if it waits for nothing.
	since time.Time
	// started is when it was approved, ended when it was seen to be done.
	started, ended time.Time
	outcome        outcome
}

type outcome int

const (
	underWay outcome = iota
	succeeded
	failed
)

// Machines is the board of machines on their way to Ready.
type Machines struct {
	names []string
	// trouble is why there is no news; empty while there is.
	trouble string
	states  map[string]*machineState
	// removal says that the machines are on their way out.
	removal bool
}

// NewMachines makes a board for the machines with these names.
func NewMachines(names []string) *Machines {
	board := &Machines{names: slices.Clone(names), states: map[string]*machineState{}}
	for _, name := range names {
		board.states[name] = &machineState{title: name}
	}
	return board
}

// NewRemoval makes a board for machines that are being removed: each is done when its object is gone.
func NewRemoval(names []string) *Machines {
	board := NewMachines(names)
	board.removal = true
	return board
}

// Observe takes a machine's state in. It returns a line for people if something changed that they would want to know.
func (b *Machines) Observe(machine *v1alpha1.TalosMachine, now time.Time) string {
	state, mine := b.states[machine.Name]
	if !mine {
		return ""
	}
	next := read(machine)
	if b.removal {
		next = readLeaving(machine)
	}
	changed := next.phase != state.phase || next.stage != state.stage || next.waiting != state.waiting || next.outcome != state.outcome
	if next.outcome != underWay {
		next.ended = now
		if state.outcome == next.outcome {
			next.ended = state.ended
		}
	}
	*state = next
	if !changed {
		return ""
	}
	return state.transition()
}

// Vanished takes in that a machine's object is gone.
func (b *Machines) Vanished(name string, now time.Time) string {
	state, mine := b.states[name]
	if !mine || state.outcome == failed {
		return ""
	}
	if b.removal {
		if state.outcome == succeeded {
			return ""
		}
		state.phase, state.stage, state.outcome, state.ended, state.waiting = gone, "", succeeded, now, ""
		return state.transition()
	}
	state.phase, state.outcome, state.ended, state.waiting = v1alpha1.PhaseFailed, failed, now, "its object was deleted"
	return state.transition()
}

func read(machine *v1alpha1.TalosMachine) machineState {
	state := machineState{title: screen.MachineTitle(machine), phase: machine.Status.Phase, stage: machine.Status.Stage}
	if machine.Spec.Approval != nil && machine.Spec.Approval.At != nil {
		state.started = machine.Spec.Approval.At.Time
	}
	if waiting, waits := overview.WaitsFor(machine); waits {
		state.waiting, state.since = waiting.What, waiting.Since
	}
	switch {
	case machine.Status.Phase == v1alpha1.PhaseFailed, machine.Spec.ApprovalState == v1alpha1.ApprovalRejected:
		state.outcome = failed
	case overview.IsReady(machine):
		state.phase, state.waiting, state.outcome = v1alpha1.PhaseReady, "", succeeded
	case state.phase == "" || state.phase == v1alpha1.PhasePending:
		state.phase = v1alpha1.PhaseApproved // the controller hasn't looked yet
	}
	return state
}

// gone is shown of a machine whose object is.
const gone v1alpha1.MachinePhase = "removed"

// readLeaving reads how far a machine is that is being removed, and what it waits for.
func readLeaving(machine *v1alpha1.TalosMachine) machineState {
	state := machineState{title: screen.MachineTitle(machine), phase: v1alpha1.PhaseRemoving, stage: machine.Status.Stage}
	if machine.DeletionTimestamp != nil {
		state.started = machine.DeletionTimestamp.Time
	}
	ready := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Status != metav1.ConditionTrue && machine.DeletionTimestamp != nil {
		state.waiting, state.since = strings.TrimPrefix(ready.Message, "being removed: "), ready.LastTransitionTime.Time
	}
	return state
}

// transition is a plain line about a state that was just entered.
func (s *machineState) transition() string {
	words := []string{s.title, string(s.phase)}
	if s.stage != "" && !strings.EqualFold(string(s.stage), string(s.phase)) {
		words = append(words, "("+string(s.stage)+")")
	}
	line := strings.Join(words, " ")
	if s.waiting != "" {
		line += ": " + s.waiting
	}
	return line
}

// Done is true when there is nothing left to watch.
func (b *Machines) Done() bool {
	return !slices.ContainsFunc(b.names, func(name string) bool { return b.states[name].outcome == underWay })
}

// Err says which machines failed, and why; nil if none did.
func (b *Machines) Err() error {
	var failures []string
	for _, name := range b.names {
		if state := b.states[name]; state.outcome == failed {
			failures = append(failures, fmt.Sprintf("%s: %s", state.title, state.waiting))
		}
	}
	if len(failures) == 0 {
		return nil
	}
	return fmt.Errorf("%s didn't become Ready: %s", screen.Plural(len(failures), "machine", "machines"), strings.Join(failures, "; "))
}

// Lines implements Board.
func (b *Machines) Lines(now time.Time, style screen.Style, width int) []string {
	rows := make([][]string, 0, len(b.names))
	for _, name := range b.names {
		rows = append(rows, b.states[name].row(now, style))
	}
	lines := screen.Columns(rows)
	for i := range lines {
		lines[i] = screen.Cut(lines[i], width)
	}
	if b.trouble != "" {
		lines = append(lines, screen.Cut(style.Bad(b.trouble), width))
	}
	return lines
}

func (s *machineState) row(now time.Time, style screen.Style) []string {
	end, mark := now, style.Wait
	switch s.outcome {
	case succeeded:
		end, mark = s.ended, style.Good
	case failed:
		end, mark = s.ended, style.Bad
	}
	elapsed := ""
	if !s.started.IsZero() {
		elapsed = screen.Age(end, s.started)
	}
	waits := s.waiting
	if waits != "" && s.outcome == underWay && !s.since.IsZero() {
		waits += style.Faint(" (for " + screen.Age(now, s.since) + ")")
	}
	phase := s.phase
	if phase == "" {
		phase = "…"
	}
	return []string{style.Heading(s.title), mark(bar(s.phase)), mark(string(phase)), elapsed, waits}
}

// bar shows how far along the way a phase is.
func bar(phase v1alpha1.MachinePhase) string {
	reached := slices.Index(way, phase) + 1
	return strings.Repeat("▰", reached) + strings.Repeat("▱", len(way)-reached)
}
