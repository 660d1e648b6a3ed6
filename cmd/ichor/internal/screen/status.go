// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"fmt"
	"strings"
	"time"

	"maesh.dev/ichor/cmd/ichor/internal/overview"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Status is everything on one screen: what waits for a person first, then what goes on by itself, then what is wrong.
func Status(clusters []v1alpha1.TalosCluster, look overview.Overview, machines int, now time.Time, style Style) string {
	p := &page{style: style}
	for i := range clusters {
		if i > 0 {
			p.line("")
		}
		cluster := &clusters[i]
		endpoint := cluster.Spec.ControlPlane.Endpoint
		p.line(style.Heading(cluster.Name) + "  " + style.Faint(fmt.Sprintf("https://%s:%d", endpoint.Host, endpoint.Port)))
		for _, line := range statusFacts(cluster, style) {
			p.line(line)
		}
	}
	p.block("Needs you", items(look.NeedsYou, now, style, style.Wait))
	p.block("In progress, longest first", items(look.InProgress, now, style, style.Wait))
	p.block("Wrong", items(look.Wrong, now, style, style.Bad))
	if len(look.NeedsYou)+len(look.InProgress)+len(look.Wrong) == 0 {
		p.line("")
		p.line(style.Good("Nothing waits for you.") + "  " + Plural(machines, "machine", "machines") + " known.")
	}
	return strings.TrimPrefix(p.text.String(), "\n")
}

func statusFacts(cluster *v1alpha1.TalosCluster, style Style) []string {
	list := &fields{}
	clusterMachines(cluster, list, style)
	voters, learners := 0, 0
	for _, member := range cluster.Status.EtcdMembers {
		if member.Learner {
			learners++
		} else {
			voters++
		}
	}
	quorum := Unknown
	if voters > 0 {
		quorum = Quorum(voters)
		if learners > 0 {
			quorum += ", " + Plural(learners, "learner", "learners")
		}
	}
	list.add("etcd", quorum)
	list.add("Discovery", discoveryState(cluster))
	return list.lines(style, gap)
}

// items draws a list; each item's command is on a line of its own, so that it can be copied.
func items(list []overview.Item, now time.Time, style Style, mark func(string) string) []string {
	rows := make([][]string, 0, len(list))
	for _, item := range list {
		rows = append(rows, []string{mark("•") + " " + item.Subject, Age(now, item.Since), item.What})
	}
	var lines []string
	for i, line := range Columns(rows) {
		lines = append(lines, gap+line)
		if advice := Advice(list[i].Advice, style); advice != "" {
			lines = append(lines, gap+gap+"→ "+advice)
		}
	}
	return lines
}

// Advice draws what to do on one line.
func Advice(advice overview.Advice, style Style) string {
	switch {
	case advice.Words != "" && advice.Command != "":
		return advice.Words + ": " + style.Command(advice.Command)
	case advice.Command != "":
		return style.Command(advice.Command)
	default:
		return advice.Words
	}
}
