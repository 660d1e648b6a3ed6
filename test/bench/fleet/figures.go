// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"maesh.dev/ichor/test/bench/report"
)

// What is aimed at.
const (
	// atMostTime is the time to the last Ready, in terms of what the machines take by themselves.
	atMostTime = 1.2
	// atMostMemory is the controller's, in MiB.
	atMostMemory = 300
	// atMostWrites is how many writes of the controller's one machine may cost from its approval to Ready: objects,
	// statuses and events.
	atMostWrites = 20
)

// figures are what was measured.
type figures struct {
	discovery, approval, provisioning time.Duration
	// overhead is each machine's time from its first configuration to the Node.
	overhead []time.Duration
	// configuration is the time that a changed patch takes to reach every worker.
	configuration             time.Duration
	configurationCPU, restCPU map[string]time.Duration
	memory                    float64
	writesBefore, writesAfter writes
	cpu                       map[string]time.Duration
	operations                operationFigures
}

// of is the table of what was measured.
func (f *figures) of(s settings) []report.Row {
	if s.operations {
		return f.operations.rows(s)
	}
	return f.rows(s)
}

// rows is the table.
func (f *figures) rows(s settings) []report.Row {
	own := s.own().Seconds()
	written := f.writesAfter.since(f.writesBefore)
	per := func(n int) float64 { return float64(n) / float64(s.machines) }
	alone := (s.install + s.reboot).Seconds()
	rows := []report.Row{
		report.Compare(fmt.Sprintf("one scan finds %d machines", s.machines), f.discovery.Seconds(), 0, "s", 0),
		report.Compare("one command approves them", f.approval.Seconds(), 0, "s", 0),
		report.Compare(fmt.Sprintf("all are Ready, %d at a time; peer: their own time", s.parallel), f.provisioning.Seconds(), own, "s", atMostTime),
		report.Compare("one machine, configuration to Node, median", at(f.overhead, 0.5).Seconds(), alone, "s", 0),
		report.Compare("one machine, configuration to Node, 99 of 100", at(f.overhead, 0.99).Seconds(), alone, "s", 0),
		report.Compare(fmt.Sprintf("a changed patch is on all, %d at a time; peer: their own time", s.configured), f.configuration.Seconds(), s.ownConfiguration().Seconds(), "s", atMostTime),
		report.Compare("controller's memory at its peak; peer: the limit", f.memory, atMostMemory, "MiB", 1),
		report.Compare("writes for each machine after its approval; peer: the limit", per(written.total()), atMostWrites, "1", 1),
	}
	for _, key := range written.byCount() {
		rows = append(rows, report.Compare("  "+key, per(written[key]), 0, "1", 0))
	}
	rows = append(rows, cpuRows("CPU for each machine until it is Ready, all programs", f.cpu, s.machines)...)
	rows = append(rows, cpuRows("CPU for each machine until it has the patch, all programs", f.configurationCPU, s.machines)...)
	return append(rows, cpuRows("CPU for each machine in "+restFor.String()+" in which nothing happens, all programs", f.restCPU, s.machines)...)
}

// cpuRows are what one machine costs, in all and by program.
func cpuRows(name string, spent map[string]time.Duration, machines int) []report.Row {
	total := time.Duration(0)
	for _, each := range spent {
		total += each
	}
	milliseconds := func(d time.Duration) float64 { return float64(d.Milliseconds()) / float64(machines) }
	rows := []report.Row{report.Compare(name, milliseconds(total), 0, "ms", 0)}
	for _, program := range slices.Sorted(maps.Keys(spent)) {
		rows = append(rows, report.Compare("  "+program, milliseconds(spent[program]), 0, "ms", 0))
	}
	return rows
}

// at is the time that a share of all don't exceed.
func at(times []time.Duration, share float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

// difference is what was spent between two looks.
func difference(before, after map[string]time.Duration) map[string]time.Duration {
	out := map[string]time.Duration{}
	for name, spent := range after {
		if more := spent - before[name]; more > 0 {
			out[name] = more
		}
	}
	return out
}

// since is what was counted after an earlier count.
func (w writes) since(before writes) writes {
	out := writes{}
	for key, n := range w {
		if more := n - before[key]; more > 0 {
			out[key] = more
		}
	}
	return out
}

// byCount are the kinds of writes, the most frequent first.
func (w writes) byCount() []string {
	return slices.SortedFunc(maps.Keys(w), func(a, b string) int {
		if w[a] != w[b] {
			return w[b] - w[a]
		}
		return strings.Compare(a, b)
	})
}
