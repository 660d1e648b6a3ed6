// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/localstack"
	"maesh.dev/ichor/test/localstack/loopback"
	"maesh.dev/ichor/test/localstack/state"
)

// atOnce is how many machines are switched on or labelled at a time.
const atOnce = 16

// firstHost is where a stack's machines begin within its range.
const firstHost = 11

// writeFleet describes the machines: one that becomes the control plane at once, and workers without power.
func writeFleet(s settings, path string) error {
	first := loopback.Default.Addr()
	for range firstHost {
		first = first.Next()
	}
	machines, err := fleet.Generate(fleet.GenerateOptions{
		Machines: s.machines + 1, First: first, PrefixBits: loopback.Default.Bits(), NamePrefix: "bench", TalosVersion: localstack.TalosVersion,
	})
	if err != nil {
		return err
	}
	for i := range machines.Machines[1:] {
		m := &machines.Machines[i+1]
		m.State = fleet.StateOff
		m.Timings.Install, m.Timings.Reboot = fleet.Duration(s.install), fleet.Duration(s.reboot)
	}
	text, err := machines.Encode()
	if err != nil {
		return fmt.Errorf("write fleet file: %w", err)
	}
	return state.Write(path, text)
}

// startStack starts everything; only the control plane has power.
func startStack(ctx context.Context, s settings, begin time.Time) (*localstack.Stack, error) {
	dir, err := state.Open(s.state)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(string(dir), "bench.yaml")
	if err := writeFleet(s, file); err != nil {
		return nil, err
	}
	options := localstack.Options{
		StateDir: s.state, BinDir: s.binaries, FleetFile: file,
		// What a cluster has that says nothing about it; a shorter one would look at all machines again and again.
		Interval: 5 * time.Minute,
		// The control plane's own is counted.
		NoAuditLog: true, NoPods: true,
		Progress: func(message string) { say(begin, "%s", message) },
	}
	if s.profile {
		options.ControllerArgs = []string{"--profiling"}
	}
	return localstack.Start(ctx, options)
}

// switchOn gives the workers power and waits until every one of them listens.
func switchOn(ctx context.Context, stack *localstack.Stack) error {
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	machines := stack.Machines()
	for i := range stack.Fleet().Machines {
		m := &stack.Fleet().Machines[i]
		if m.State != fleet.StateOff {
			continue
		}
		group.Go(func() error {
			_, err := machines.Do(inner, "power-on", m.Name)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("switch the machines on: %w", err)
	}
	return until(ctx, "every machine listens", func(ctx context.Context) (bool, error) {
		all, err := machines.All(ctx)
		if err != nil {
			return false, err
		}
		for _, each := range all {
			if !each.Listening {
				return false, nil
			}
		}
		return true, nil
	})
}

// addressesOf are the workers' addresses.
func addressesOf(stack *localstack.Stack) map[string]bool {
	out := map[string]bool{}
	for i := range stack.Fleet().Machines {
		if m := &stack.Fleet().Machines[i]; m.State == fleet.StateOff {
			out[netip.Addr.String(m.Addr())] = true
		}
	}
	return out
}

// lookEvery is the time between two looks in a wait.
const lookEvery = 250 * time.Millisecond

// until waits for a condition.
func until(ctx context.Context, what string, reached func(context.Context) (bool, error)) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		done, err := reached(ctx)
		if err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		case <-ticker.C:
		}
	}
}
