// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"

	"maesh.dev/ichor/cmd/ichor/internal/screen"
)

// text is a screen that is being written.
type text struct {
	style screen.Style
	out   strings.Builder
}

func (t *text) block(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	if t.out.Len() > 0 {
		t.out.WriteByte('\n')
	}
	t.out.WriteString(t.style.Heading(title) + "\n")
	for _, line := range lines {
		t.out.WriteString("  " + line + "\n")
	}
}

// StatusText is the report on one screen.
func StatusText(r *Report, style screen.Style) string {
	t := &text{style: style}
	t.block("Machines", machineLines(r, style))
	t.block("etcd", append(etcdLines(&r.Etcd, style), memberLines(&r.Etcd, style)...))
	t.block("Kubernetes API", apiLines(r, style))
	t.verdict(r)
	return t.out.String()
}

// EtcdText is what the report says of etcd, in full.
func EtcdText(r *Report, style screen.Style) string {
	t := &text{style: style}
	t.block("etcd", etcdLines(&r.Etcd, style))
	t.block("Members", memberTable(&r.Etcd))
	t.verdict(r)
	return t.out.String()
}

func (t *text) verdict(r *Report) {
	bullets := make([]string, 0, len(r.Lost))
	for _, lost := range r.Lost {
		bullets = append(bullets, "• "+lost)
	}
	t.block("What is lost", bullets)
	var steps []string
	for i, step := range r.Next {
		steps = append(steps, fmt.Sprintf("%d. %s", i+1, step.What))
		if step.Command != "" {
			steps = append(steps, "   → "+t.style.Command(step.Command))
		}
	}
	t.block("Next safe move", steps)
}

func machineLines(r *Report, style screen.Style) []string {
	rows := make([][]string, 0, len(r.Nodes))
	for i := range r.Nodes {
		node := &r.Nodes[i]
		rows = append(rows, []string{orAddress(node), node.Address, roleWord(node.Role), stateWord(node, style), machineDetails(node, style)})
	}
	return screen.Columns(rows)
}

func roleWord(role string) string {
	switch role {
	case ControlPlane:
		return "control plane"
	case Worker:
		return "worker"
	default:
		return screen.Unknown
	}
}

func stateWord(node *Node, style screen.Style) string {
	switch {
	case node.State == Answers && node.Stage == "running" && node.Ready:
		return style.Good("running")
	case node.State == Answers && node.Stage == "running":
		return style.Wait("running, not ready")
	case node.State == Answers && node.Stage == "":
		return style.Wait("answers")
	case node.State == Answers:
		return style.Wait(node.Stage)
	case node.State == Maintenance:
		return style.Bad("maintenance")
	case node.State == Refused:
		return style.Bad("not of this cluster")
	case node.State == NotTalos:
		return style.Bad("not Talos")
	default:
		return style.Bad("silent")
	}
}

func machineDetails(node *Node, style screen.Style) string {
	var words []string
	if node.TalosVersion != "" {
		words = append(words, "Talos "+node.TalosVersion)
	}
	for _, service := range node.Services {
		switch service.Health {
		case Healthy:
			words = append(words, service.Name+" healthy")
		case Unhealthy:
			words = append(words, style.Bad(service.Name+" unhealthy"))
		default:
			words = append(words, style.Wait(service.Name+" "+strings.ToLower(service.State)))
		}
	}
	if node.TimeSynced != nil && !*node.TimeSynced {
		words = append(words, style.Wait("time not set"))
	}
	if offset := node.ClockOffsetSeconds; offset != nil && (*offset > maxClockOffset || *offset < -maxClockOffset) {
		words = append(words, style.Bad(fmt.Sprintf("clock off by %.0f s", *offset)))
	}
	if node.Message != "" {
		words = append(words, node.Message)
	}
	return strings.Join(words, ", ")
}

func quorumWord(e *Etcd, style screen.Style) string {
	switch e.Quorum {
	case QuorumHeld:
		return style.Good("quorum held")
	case QuorumElecting:
		return style.Bad("no leader")
	case QuorumLost:
		return style.Bad("quorum lost")
	default:
		return style.Wait("quorum unknown")
	}
}

func etcdLines(e *Etcd, style screen.Style) []string {
	lines := []string{quorumWord(e, style) + ": " + e.Arithmetic()}
	if e.Learners > 0 {
		lines = append(lines, isAre(e.Learners, "learner", "learners")+" besides, which don't vote yet")
	}
	if e.Source == FromDiscovery {
		lines = append(lines, "members as Talos' discovery knows control planes: etcd lists none without a quorum")
	}
	for _, alarm := range e.Alarms {
		lines = append(lines, style.Bad("alarm "+alarm.Kind+" of "+alarm.Member))
	}
	return lines
}

func memberLines(e *Etcd, style screen.Style) []string {
	rows := make([][]string, 0, len(e.Members))
	for i := range e.Members {
		member := &e.Members[i]
		kind := "voter"
		switch {
		case member.Learner:
			kind = "learner"
		case member.Leader:
			kind = "leader"
		}
		row := []string{member.Name(), kind, style.Bad("doesn't answer"), member.Problem}
		if member.Answers {
			row[2], row[3] = style.Good("answers"), memberDetails(member)
		}
		rows = append(rows, row)
	}
	return screen.Columns(rows)
}

func memberDetails(m *Member) string {
	words := []string{
		fmt.Sprintf("applied %d of %d, term %d", m.RaftApplied, m.RaftIndex, m.RaftTerm),
		"database " + humanize.IBytes(uint64(max(m.DBSize, 0))),
	}
	return strings.Join(append(words, m.Errors...), ", ")
}

func memberTable(e *Etcd) []string {
	rows := [][]string{{"ID", "HOSTNAME", "ADDRESS", "LEARNER", "ANSWERS", "LEADER", "TERM", "INDEX", "APPLIED", "DB SIZE", "IN USE", "VERSION", "NOTE"}}
	for i := range e.Members {
		m := &e.Members[i]
		row := []string{orNone(m.ID), orNone(m.Hostname), orNone(m.Address), fmt.Sprint(m.Learner), fmt.Sprint(m.Answers)}
		if m.Answers {
			row = append(row, fmt.Sprint(m.Leader), fmt.Sprint(m.RaftTerm), fmt.Sprint(m.RaftIndex), fmt.Sprint(m.RaftApplied),
				humanize.IBytes(uint64(max(m.DBSize, 0))), humanize.IBytes(uint64(max(m.DBInUse, 0))), orNone(m.Version), strings.Join(m.Errors, ", "))
		} else {
			for range 7 {
				row = append(row, screen.Unknown)
			}
			row = append(row, m.Problem)
		}
		rows = append(rows, row)
	}
	if len(rows) == 1 {
		return nil
	}
	return screen.Columns(rows)
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}

func apiLines(r *Report, style screen.Style) []string {
	rows := make([][]string, 0, len(r.Kubernetes))
	for _, api := range r.Kubernetes {
		state := style.Bad("doesn't answer")
		switch {
		case api.Ready:
			state = style.Good("ready")
		case api.Answers:
			state = style.Bad("answers, not ready")
		}
		rows = append(rows, []string{api.URL, state, api.Message})
	}
	return screen.Columns(rows)
}
