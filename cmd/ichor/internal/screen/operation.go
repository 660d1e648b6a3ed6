// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/overview"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Titles are the names that people know machines by, by the names of their objects.
type Titles map[string]string

// NewTitles takes the titles of machines.
func NewTitles(machines []v1alpha1.TalosMachine) Titles {
	titles := Titles{}
	for i := range machines {
		titles[machines[i].Name] = MachineTitle(&machines[i])
	}
	return titles
}

// Of is the title of a machine; its name if no other is known.
func (t Titles) Of(name string) string {
	if title := t[name]; title != "" {
		return title
	}
	return name
}

// In puts the titles of an operation's machines into a message about them.
func (t Titles) In(message string, operation *v1alpha1.TalosOperation) string {
	if operation.Status.Plan == nil {
		return message
	}
	for _, planned := range operation.Status.Plan.Machines {
		// The engine's messages name a machine by its object, which is a UUID; shorter names are words of their own.
		if len(planned.Name) >= 12 {
			message = strings.ReplaceAll(message, planned.Name, t.Of(planned.Name))
		}
	}
	return message
}

// OperationPhase is where an operation is, coloured by whether that is good.
func OperationPhase(operation *v1alpha1.TalosOperation, style Style) string {
	phase := overview.OperationPhase(operation)
	switch phase {
	case v1alpha1.OperationSucceeded:
		return style.Good(string(phase))
	case v1alpha1.OperationFailed, v1alpha1.OperationPaused:
		return style.Bad(string(phase))
	default:
		return style.Wait(string(phase))
	}
}

// Operation is all about one operation on one screen.
func Operation(operation *v1alpha1.TalosOperation, titles Titles, program string, now time.Time, style Style) string {
	p := &page{style: style}
	title := style.Heading(operation.Name) + "  " + overview.OperationType(&operation.Spec)
	if operation.Spec.Mode == v1alpha1.OperationModePlan {
		title += " (plan only)"
	}
	p.line(title + "  " + OperationPhase(operation, style))
	if message := operation.Status.Message; message != "" {
		p.line(gap + titles.In(message, operation))
	}
	p.block("Operation", operationFacts(operation, now, style))
	plan(p, operation, titles, now)
	p.block("Next", adviceLines(overview.NextOperation(operation, program), style))
	return p.text.String()
}

func adviceLines(advice []overview.Advice, style Style) []string {
	var lines []string
	for _, one := range advice {
		lines = append(lines, gap+Advice(one, style))
	}
	return lines
}

func operationFacts(operation *v1alpha1.TalosOperation, now time.Time, style Style) []string {
	spec, status := &operation.Spec, &operation.Status
	list := &fields{}
	list.add("Cluster", spec.ClusterRef.Name)
	list.add("Created", Age(now, operation.CreationTimestamp.Time)+" ago")
	if spec.Reboot != nil && spec.Reboot.Mode == v1alpha1.RebootPowerCycle {
		list.add("Reboot", "through the firmware (power cycle)")
	}
	if status.StartedAt != nil {
		end, word := now, "for "
		if status.FinishedAt != nil {
			end, word = status.FinishedAt.Time, "took "
		}
		list.add("Began", Age(now, status.StartedAt.Time)+" ago, "+word+Age(end, status.StartedAt.Time))
	}
	if status.Total > 0 && spec.Mode != v1alpha1.OperationModePlan {
		list.add("Done", fmt.Sprintf("%d of %s", status.Done, Plural(int(status.Total), "machine", "machines")))
	}
	if status.Plan != nil && (status.Plan.From != "" || status.Plan.To != "") {
		list.add("Versions", orNone(status.Plan.From)+" to "+orNone(status.Plan.To))
	}
	if spec.Suspend {
		list.add("Suspended", style.Wait("no further machine is begun"))
	}
	list.add("Asked", asked(spec.Control, now))
	list.addLines("Gates", gateLines(spec.Gates))
	list.addLines("Windows", windowLines(spec.Windows))
	return list.lines(style, gap)
}

// asked is what people asked of a running operation, and who did last.
func asked(control *v1alpha1.OperationControl, now time.Time) string {
	if control == nil {
		return ""
	}
	var words []string
	if control.ResumeRequests > 0 {
		words = append(words, "to resume, "+Plural(int(control.ResumeRequests), "time", "times"))
	}
	if control.CancelRequested {
		words = append(words, "to cancel")
	}
	text := strings.Join(words, ", ")
	if text == "" || control.By == "" {
		return text
	}
	text += "; last by " + control.By
	if control.At != nil {
		text += ", " + Age(now, control.At.Time) + " ago"
	}
	return text
}

func gateLines(gates []v1alpha1.OperationGate) []string {
	var lines []string
	for _, gate := range gates {
		what := ""
		switch {
		case gate.CEL != nil:
			what = fmt.Sprintf("%s %s: %s", gate.CEL.Kind, strings.TrimPrefix(gate.CEL.Namespace+"/"+gate.CEL.Name, "/"), gate.CEL.Expression)
		case gate.Job != nil:
			what = fmt.Sprintf("a Job of CronJob %s/%s", gate.Job.Namespace, gate.Job.CronJob)
		}
		lines = append(lines, gate.Name+gap+what)
	}
	return lines
}

func windowLines(windows []v1alpha1.OperationWindow) []string {
	var lines []string
	for _, window := range windows {
		zone := window.TimeZone
		if zone == "" {
			zone = "UTC"
		}
		lines = append(lines, fmt.Sprintf("%s for %s, %s", window.Schedule, window.Duration.Duration, zone))
	}
	return lines
}

// plan draws the checks, the risks, and the machines in their order with where each is.
func plan(p *page, operation *v1alpha1.TalosOperation, titles Titles, now time.Time) {
	made := operation.Status.Plan
	if made == nil {
		p.block("Plan", []string{gap + "not made yet"})
		return
	}
	p.block("Checks", checks(made.Checks, titles, operation, p.style))
	var risks []string
	for _, risk := range made.Risks {
		risks = append(risks, gap+p.style.Wait("• ")+titles.In(risk, operation))
	}
	p.block("Risks", risks)
	var rows [][]string
	for i, planned := range made.Machines {
		rows = append(rows, machineRow(i+1, planned, operation, titles, now, p.style))
	}
	p.block("Machines, in this order", indented(Columns(rows)))
}

func checks(made []v1alpha1.OperationCheck, titles Titles, operation *v1alpha1.TalosOperation, style Style) []string {
	var rows [][]string
	for _, check := range made {
		result := string(check.Result)
		switch check.Result {
		case v1alpha1.CheckPassed:
			result = style.Good(result)
		case v1alpha1.CheckFailed:
			result = style.Bad(result)
		default:
			result = style.Wait(result)
		}
		rows = append(rows, []string{check.Name, result, titles.In(check.Message, operation)})
	}
	return indented(Columns(rows))
}

// machineRow is one machine of a plan: its place, its title, its step with the state and since when, how long it took, and
// a message. One that is yet to come has its steps.
func machineRow(place int, planned v1alpha1.PlannedMachine, operation *v1alpha1.TalosOperation, titles Titles, now time.Time, style Style) []string {
	row := []string{fmt.Sprintf("%d.", place), titles.Of(planned.Name)}
	record := OperationMachine(operation, planned.Name)
	switch {
	case record == nil || record.StartedAt == nil:
		return append(row, style.Faint("to come"), "", "", "", strings.Join(planned.Steps, ", "))
	case record.Done:
		return append(row, style.Good("done"), "", "", took(record, now), leftOut(record, operation, titles))
	}
	state := string(record.State)
	if record.State == v1alpha1.StepFailed {
		state = style.Bad(state)
	}
	message := titles.In(record.Message, operation)
	if left := leftOut(record, operation, titles); left != "" {
		message = strings.TrimPrefix(message+"; "+left, "; ")
	}
	return append(row, style.Wait(record.Step), state, since(record.At, now), took(record, now), message)
}

// leftOut are the steps that weren't done on a machine though they were planned, with the reasons.
func leftOut(record *v1alpha1.OperationMachineStatus, operation *v1alpha1.TalosOperation, titles Titles) string {
	var parts []string
	for _, left := range record.LeftOut {
		parts = append(parts, fmt.Sprintf("without %s: %s", strings.Join(left.Steps, ", "), titles.In(left.Reason, operation)))
	}
	return strings.Join(parts, "; ")
}

// OperationMachine is the record of a machine; nil before it was begun.
func OperationMachine(operation *v1alpha1.TalosOperation, name string) *v1alpha1.OperationMachineStatus {
	for i := range operation.Status.Machines {
		if operation.Status.Machines[i].Name == name {
			return &operation.Status.Machines[i]
		}
	}
	return nil
}

func since(at *metav1.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	return "since " + Age(now, at.Time)
}

func took(record *v1alpha1.OperationMachineStatus, now time.Time) string {
	if record.FinishedAt != nil {
		return "took " + Age(record.FinishedAt.Time, record.StartedAt.Time)
	}
	return "for " + Age(now, record.StartedAt.Time)
}
