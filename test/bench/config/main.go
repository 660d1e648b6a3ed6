// SPDX-License-Identifier: Apache-2.0

// Command config measures how quickly machines' configurations are rendered: fifty patches on each of a thousand machines,
// as the controller does it, in one process. How quickly a changed patch reaches machines is measured by the chapter fleet.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/test/bench/report"
)

// chapter names the results' file.
const chapter = "config"

func main() {
	results := flag.String("results", ".local/bench", "folder for the results")
	machines := flag.Int("machines", 1000, "how many machines")
	patches := flag.Int("patches", 50, "how many patches each has")
	flag.Parse()
	if err := run(*results, *machines, *patches); err != nil {
		fmt.Fprintln(os.Stderr, "bench config:", err)
		os.Exit(1)
	}
}

func run(results string, machines, patches int) error {
	in, err := inputs(patches)
	if err != nil {
		return err
	}
	without := in
	without.Patches = nil
	bare, err := render(without, machines)
	if err != nil {
		return err
	}
	patched, err := render(in, machines)
	if err != nil {
		return err
	}
	in.Machine = machine(0)
	text, err := machineconfig.Render(in)
	if err != nil {
		return err
	}
	const compared = 100
	begin := time.Now()
	for range compared {
		if _, err := machineconfig.Compare(text, append(text[:len(text):len(text)], '\n'), nil); err != nil {
			return err
		}
	}
	comparing := time.Since(begin) / compared
	return report.Write(os.Stdout, results, chapter, []report.Row{
		report.Compare(fmt.Sprintf("renders a second, %d patches, %d machines", patches, machines), patched.perSecond(), 0, "1/s", 0),
		report.Compare("  allocated for each", patched.kib(), 0, "KiB", 0),
		report.Compare("  allocations for each", patched.allocations(), 0, "1", 0),
		report.Compare("renders a second without patches", bare.perSecond(), 0, "1/s", 0),
		report.Compare("  allocated for each", bare.kib(), 0, "KiB", 0),
		report.Compare("  allocations for each", bare.allocations(), 0, "1", 0),
		report.Compare("comparing one with what a machine runs", float64(comparing.Microseconds())/1000, 0, "ms", 0),
	})
}

// cost is what rendering a number of machines took.
type cost struct {
	machines       int
	took           time.Duration
	bytes, mallocs uint64
}

func (c cost) perSecond() float64   { return float64(c.machines) / c.took.Seconds() }
func (c cost) kib() float64         { return float64(c.bytes) / float64(c.machines) / 1024 }
func (c cost) allocations() float64 { return float64(c.mallocs) / float64(c.machines) }

// render renders each machine once, one after the other.
func render(in machineconfig.Inputs, machines int) (cost, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin := time.Now()
	for n := range machines {
		in.Machine = machine(n)
		if _, err := machineconfig.Render(in); err != nil {
			return cost{}, fmt.Errorf("render machine %d: %w", n, err)
		}
	}
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	return cost{machines: machines, took: took, bytes: after.TotalAlloc - before.TotalAlloc, mallocs: after.Mallocs - before.Mallocs}, nil
}

// machine is the nth worker; all have the same disks.
func machine(n int) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{}
	m.Name = fmt.Sprintf("4c4c4544-0051-3610-8052-b4c04f4c%04x", n)
	m.Spec.ClusterRef.Name, m.Spec.Role, m.Spec.Hostname = "prod", v1alpha1.RoleWorker, fmt.Sprintf("worker-%d", n)
	m.Spec.Disks = []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "S1"}, Role: v1alpha1.DiskSystem}}
	v1alpha1.SetDefaults_TalosMachineSpec(&m.Spec)
	return m
}
