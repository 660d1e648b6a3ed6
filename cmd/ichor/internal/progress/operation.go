// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"maesh.dev/ichor/cmd/ichor/internal/overview"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// shownMachines bounds how many machines are drawn; of the others it is said how many they are.
const shownMachines = 16

// Operation is the board of one operation: its phase, and for each machine the step that it is at.
type Operation struct {
	name, program string
	titles        screen.Titles
	// endsPaused ends the watching when the operation is Paused: nobody is there who could do something about it.
	endsPaused bool
	latest     *v1alpha1.TalosOperation
	told       map[string]string
	gone       bool
	trouble    string
}

// NewOperation makes a board for an operation. Program is how the CLI was called.
func NewOperation(name string, titles screen.Titles, endsPaused bool, program string) *Operation {
	return &Operation{name: name, titles: titles, endsPaused: endsPaused, program: program, told: map[string]string{}}
}

// Latest is the operation as it was seen last; nil if it never was.
func (o *Operation) Latest() *v1alpha1.TalosOperation { return o.latest }

// Observe takes the operation's state in. It returns a line for each transition that people would want to know of.
func (o *Operation) Observe(operation *v1alpha1.TalosOperation) []string {
	o.latest = operation
	var lines []string
	tell := func(subject, text string) {
		// A number that counts up, as in "for 12s", is no transition.
		key := strings.Map(func(r rune) rune {
			if unicode.IsDigit(r) {
				return -1
			}
			return r
		}, text)
		if o.told[subject] != key {
			o.told[subject] = key
			lines = append(lines, subject+" "+text)
		}
	}
	status := &operation.Status
	if status.Plan != nil && o.told["plan"] == "" {
		o.told["plan"] = "told"
		lines = append(lines, o.planLine(operation))
	}
	for i := range status.Machines {
		machine := &status.Machines[i]
		switch title := o.titles.Of(machine.Name); {
		case machine.Done && machine.StartedAt != nil && machine.FinishedAt != nil:
			tell(title, "done, took "+screen.Age(machine.FinishedAt.Time, machine.StartedAt.Time))
		case machine.Done:
			tell(title, "done")
		case machine.Step == "" || overview.OperationOver(operation), machine.State == v1alpha1.StepFailed && overview.OperationPaused(operation):
			// The operation's own line says it.
		case machine.Message != "":
			tell(title, fmt.Sprintf("%s (%s): %s", machine.Step, machine.State, o.titles.In(machine.Message, operation)))
		default:
			tell(title, fmt.Sprintf("%s (%s)", machine.Step, machine.State))
		}
	}
	if line := o.phaseLine(operation); line != "" {
		tell(operation.Name, line)
	}
	return lines
}

func (o *Operation) planLine(operation *v1alpha1.TalosOperation) string {
	plan := operation.Status.Plan
	var titles []string
	for _, planned := range plan.Machines[:min(len(plan.Machines), shownMachines)] {
		titles = append(titles, o.titles.Of(planned.Name))
	}
	if more := len(plan.Machines) - len(titles); more > 0 {
		titles = append(titles, fmt.Sprintf("%d more", more))
	}
	line := fmt.Sprintf("%s planned: %s", operation.Name, screen.Plural(len(plan.Machines), "machine", "machines"))
	if len(titles) > 0 {
		line += ": " + strings.Join(titles, ", ")
	}
	for _, check := range plan.Checks {
		if check.Result == v1alpha1.CheckWarned && check.Message != "" {
			line += "; " + check.Name + ": " + o.titles.In(check.Message, operation)
		}
	}
	for _, risk := range plan.Risks {
		line += "; risk: " + o.titles.In(risk, operation)
	}
	return line
}

// phaseLine is about the operation as a whole; empty while its machines' lines say everything.
func (o *Operation) phaseLine(operation *v1alpha1.TalosOperation) string {
	phase := overview.OperationPhase(operation)
	switch {
	case phase == v1alpha1.OperationRunning, phase == v1alpha1.OperationWaiting && operation.Status.Current != "":
		return ""
	case phase == v1alpha1.OperationPending && operation.Status.Plan != nil: // the plan's own line says it
		return ""
	}
	if operation.Status.Message == "" {
		return string(phase)
	}
	return string(phase) + ": " + o.titles.In(operation.Status.Message, operation)
}

// Done is true when there is nothing left to watch.
func (o *Operation) Done() bool {
	return o.gone || o.latest != nil && (overview.OperationOver(o.latest) || o.endsPaused && overview.OperationPaused(o.latest))
}

// Lines implements Board.
func (o *Operation) Lines(now time.Time, style screen.Style, width int) []string {
	if o.latest == nil {
		return []string{style.Heading(o.name)}
	}
	lines := []string{o.heading(now, style)}
	if message := o.phaseLine(o.latest); message != "" {
		lines = append(lines, "  "+message)
	}
	lines = append(lines, o.rows(now, style)...)
	if overview.OperationPaused(o.latest) {
		for _, advice := range overview.NextOperation(o.latest, o.program) {
			lines = append(lines, "  → "+screen.Advice(advice, style))
		}
	}
	if o.trouble != "" {
		lines = append(lines, style.Bad(o.trouble))
	}
	for i := range lines {
		lines[i] = screen.Cut(lines[i], width)
	}
	return lines
}

func (o *Operation) heading(now time.Time, style screen.Style) string {
	status := &o.latest.Status
	words := []string{style.Heading(o.name), overview.OperationType(&o.latest.Spec), screen.OperationPhase(o.latest, style)}
	if status.Total > 0 {
		words = append(words, fmt.Sprintf("%d of %d done", status.Done, status.Total))
	}
	if status.StartedAt != nil {
		end := now
		if status.FinishedAt != nil {
			end = status.FinishedAt.Time
		}
		words = append(words, screen.Age(end, status.StartedAt.Time))
	}
	return strings.Join(words, "  ")
}

// rows draws the machines: all, or those around the one that is worked on.
func (o *Operation) rows(now time.Time, style screen.Style) []string {
	if o.latest.Status.Plan == nil {
		return nil
	}
	planned := o.latest.Status.Plan.Machines
	from, to := 0, len(planned)
	if to > shownMachines {
		from = min(max(int(o.latest.Status.Done)-2, 0), to-shownMachines)
		to = from + shownMachines
	}
	rows := make([][]string, 0, to-from)
	for _, machine := range planned[from:to] {
		rows = append(rows, o.row(machine, now, style))
	}
	var lines []string
	if from > 0 {
		lines = append(lines, style.Faint(fmt.Sprintf("  … %d more before", from)))
	}
	lines = append(lines, screen.Columns(rows)...)
	if left := len(planned) - to; left > 0 {
		lines = append(lines, style.Faint(fmt.Sprintf("  … %d more to come", left)))
	}
	return lines
}

func (o *Operation) row(planned v1alpha1.PlannedMachine, now time.Time, style screen.Style) []string {
	title := "  " + o.titles.Of(planned.Name)
	record := screen.OperationMachine(o.latest, planned.Name)
	steps := len(planned.Steps)
	begun := record != nil && record.StartedAt != nil
	if record == nil || !begun && (record.Step == "" || record.State == v1alpha1.StepVerified) {
		return []string{title, style.Faint(stepBar(0, steps)), style.Faint("to come"), "", ""}
	}
	if record.Done {
		elapsed := ""
		if record.FinishedAt != nil && begun {
			elapsed = screen.Age(record.FinishedAt.Time, record.StartedAt.Time)
		}
		return []string{title, style.Good(stepBar(steps, steps)), style.Good("done"), elapsed, ""}
	}
	mark, step, reached := style.Wait, record.Step, 0
	for i, name := range planned.Steps {
		if name == record.Step {
			reached = i
			if record.State == v1alpha1.StepVerified {
				reached = i + 1
			}
		}
	}
	message := o.titles.In(record.Message, o.latest)
	switch {
	case record.State == v1alpha1.StepFailed:
		mark, step = style.Bad, step+" failed"
	case step == "":
		step = "begins"
	}
	if message != "" && record.At != nil && record.State != v1alpha1.StepVerified {
		message += style.Faint(" (for " + screen.Age(now, record.At.Time) + ")")
	}
	elapsed := ""
	if begun {
		elapsed = screen.Age(now, record.StartedAt.Time)
	}
	return []string{title, mark(stepBar(reached, steps)), mark(step), elapsed, message}
}

// stepBar shows how many of a machine's steps are behind it.
func stepBar(reached, of int) string {
	return strings.Repeat("▰", reached) + strings.Repeat("▱", of-reached)
}
