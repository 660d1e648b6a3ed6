// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"time"

	"maesh.dev/ichor/test/bench/report"
)

const (
	// bareWorkers are the connections that the bare loop has at a time: more or fewer made it slower.
	bareWorkers = 64
	// bareTimeout is that of the product's prober.
	bareTimeout = 2 * time.Second
	// maxPeak is the memory that the scanner may have, in MiB.
	maxPeak = 100
)

// series are the figures of all rounds.
type series []float64

func (s series) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func (s *series) add(d time.Duration) { *s = append(*s, d.Seconds()) }

// populated are the figures of a /16 with machines, all times in seconds.
type populated struct {
	ours, untilClassified, reads, written, oursCPU, peak series
	nmap, nmapProcess, nmapCPU                           series
	bare, bareForever, bareCPU                           series
	writes                                               int
	nmapFound                                            float64
}

// measurePopulated lets every program scan a loopback /16 with machines in it.
func measurePopulated(ctx context.Context, rounds int) (rows []report.Row, err error) {
	network, claim, err := freeNetwork()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, claim.Close()) }()
	dir, err := os.MkdirTemp("", "ichor-bench-scan-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	stop, err := startNodes(ctx, network, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	p := &populated{nmapFound: machines}
	programs := []func(context.Context, netip.Prefix) error{p.scanOurs, p.connectBare, p.scanNmap, p.connectForever}
	for round := range rounds {
		for i := range programs {
			if err := programs[(round+i)%len(programs)](ctx, network); err != nil {
				return nil, err
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d: ours %.2fs, nmap %.2fs, bare connect loop %.2fs, without a timeout %.2fs\n", round+1, rounds,
			p.ours[round], p.nmap[round], p.bare[round], p.bareForever[round])
	}
	return p.rows(), nil
}

func (p *populated) rows() []report.Row {
	ours := p.ours.median()
	return []report.Row{
		report.Compare("/16, 200 machines: first connect to last address classified; nmap", ours, p.nmap.median(), "s", 1),
		report.Compare("the same; bare connect loop with the same timeout", ours, p.bare.median(), "s", 1.5),
		report.Compare("the same; bare connect loop without a timeout", ours, p.bareForever.median(), "s", 0),
		report.Compare("start of the process to last address classified; nmap", p.untilClassified.median(), p.nmapProcess.median(), "s", 0),
		report.Compare("processor time of the process, with reads and writes; nmap", p.oursCPU.median(), p.nmapCPU.median(), "s", 0),
		report.Compare("the same; bare connect loop with the same timeout", p.oursCPU.median(), p.bareCPU.median(), "s", 0),
		report.Compare("machines found; nmap", machines, p.nmapFound, "", 0),
		report.Compare("peak memory of the process; limit", slices.Max(p.peak), maxPeak, "MiB", 1),
		report.Compare("reading the 200 inventories, apart", p.reads.median(), 0, "s", 0),
		report.Compare("API writes, apart (API in memory)", p.written.median(), 0, "s", 0),
		report.Compare("API writes", float64(p.writes), 0, "", 0),
	}
}

func (p *populated) scanOurs(ctx context.Context, network netip.Prefix) error {
	result, took, err := child[scanResult](ctx, "ours", scanTask{Network: network}, nil)
	if err != nil {
		return err
	}
	if status := result.Status; status.Maintenance != machines || status.NotTalos != 0 || status.AlreadyConfigured != 0 || len(status.Hosts) > 2 {
		return fmt.Errorf("the search found %d machines, %d configured ones and %d others of %d machines: %v",
			status.Maintenance, status.AlreadyConfigured, status.NotTalos, machines, status.Hosts)
	}
	p.ours.add(result.Took)
	p.untilClassified.add(result.Classified.Sub(took.began))
	p.reads.add(result.Reads)
	p.written.add(result.Written)
	p.oursCPU.add(took.cpu)
	p.peak = append(p.peak, result.Peak)
	p.writes = result.Writes
	return nil
}

func (p *populated) connectBare(ctx context.Context, network netip.Prefix) error {
	return bareInto(ctx, &p.bare, &p.bareCPU, bareTask{network, bareTimeout, bareWorkers})
}

func (p *populated) connectForever(ctx context.Context, network netip.Prefix) error {
	return bareInto(ctx, &p.bareForever, &series{}, bareTask{network, 0, bareWorkers})
}

func bareInto(ctx context.Context, into, cpu *series, task bareTask) error {
	result, took, err := child[bareResult](ctx, "bare", task, nil)
	if err != nil {
		return err
	}
	if result.Open != machines {
		return fmt.Errorf("the bare connect loop found %d open ports, want %d", result.Open, machines)
	}
	into.add(result.Took)
	cpu.add(took.cpu)
	return nil
}

// nmapFlags: a TCP connect scan of one port at nmap's fastest timing; without names (-n) and without a ping before (-Pn),
// as Ichor does; only what is open is printed, which is quickest.
var nmapFlags = []string{"-sT", "-p50000", "-T5", "-n", "-Pn", "--open", "-oG", "-"}

var (
	nmapTook = regexp.MustCompile(`scanned in ([0-9.]+) seconds`)
	nmapOpen = []byte("50000/open/")
)

// scanNmap takes nmap's own figure, which leaves its start out.
func (p *populated) scanNmap(ctx context.Context, network netip.Prefix) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nmap", append(slices.Clone(nmapFlags), network.String())...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	took, err := measure(cmd)
	if err != nil {
		return fmt.Errorf("nmap: %w", err)
	}
	said := nmapTook.FindSubmatch(out.Bytes())
	if said == nil {
		return fmt.Errorf("nmap doesn't say how long it took: %.200q", out.String())
	}
	seconds, err := strconv.ParseFloat(string(said[1]), 64)
	if err != nil {
		return fmt.Errorf("nmap says that it took %s: %w", said[1], err)
	}
	p.nmap = append(p.nmap, seconds)
	p.nmapProcess.add(took.wall)
	p.nmapCPU.add(took.cpu)
	p.nmapFound = min(p.nmapFound, float64(bytes.Count(out.Bytes(), nmapOpen)))
	return nil
}
