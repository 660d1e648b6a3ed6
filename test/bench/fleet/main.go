// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"maesh.dev/ichor/test/bench/report"
)

// The names of the results' files.
const (
	chapterFleet      = "fleet"
	chapterOperations = "operations"
)

// settings are what can be told.
type settings struct {
	results, binaries, state string
	machines, parallel       int
	configured               int
	install, reboot, take    time.Duration
	profile                  bool
	// operations measures operations on a fleet instead of how it gets ready.
	operations bool
	plans      int
}

func (s settings) chapter() string {
	if s.operations {
		return chapterOperations
	}
	return chapterFleet
}

func main() {
	var s settings
	flag.StringVar(&s.results, "results", ".local/bench", "folder for the results")
	flag.StringVar(&s.binaries, "bin", "bin", "folder of the programs, as `make build` fills it")
	flag.StringVar(&s.state, "state", "", "folder for the stack, which is kept; without it, one that is removed if all went well")
	flag.IntVar(&s.machines, "machines", 1000, "how many workers")
	flag.IntVar(&s.parallel, "parallel", 125, "spec.apply.maxParallel: how many of them may be on their way at a time")
	flag.IntVar(&s.configured, "configured", 25, "spec.apply.maxParallel while a changed patch reaches them")
	flag.DurationVar(&s.install, "install", 30*time.Second, "how long a machine installs")
	flag.DurationVar(&s.reboot, "reboot", 30*time.Second, "how long a machine is away when it reboots")
	flag.DurationVar(&s.take, "take", 10*time.Second, "how long a running machine takes to take up a changed configuration")
	flag.BoolVar(&s.operations, "operations", false, "measure operations on the fleet: a rolling reboot of all, and many plans")
	flag.IntVar(&s.plans, "plans", 1000, "with -operations: how many operations are kept in history")
	flag.BoolVar(&s.profile, "profile", false, "keep profiles of the controller beside the results")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "bench fleet:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be ended
	}
}

// own is the time that the machines take by themselves until they are Ready, at the allowed parallelism.
func (s settings) own() time.Duration { return s.waves(s.parallel) * (s.install + s.reboot) }

// ownConfiguration is the same for a changed configuration.
func (s settings) ownConfiguration() time.Duration { return s.waves(s.configured) * s.take }

func (s settings) waves(parallel int) time.Duration {
	return time.Duration((s.machines + parallel - 1) / parallel)
}

// limit bounds the whole run: the stack's start and end, the search, and three times the machines' own time.
func (s settings) limit() time.Duration {
	if s.operations {
		return 20*time.Minute + 3*s.own() + 3*s.ownRolling()
	}
	return 10*time.Minute + 3*s.own() + 3*s.ownConfiguration()
}

// ownRolling is the time that the machines take by themselves to reboot, one after the other.
func (s settings) ownRolling() time.Duration { return time.Duration(s.machines) * s.reboot }

func run(ctx context.Context, s settings) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit())
	defer cancel()
	if s.binaries, err = filepath.Abs(s.binaries); err != nil {
		return fmt.Errorf("folder of programs: %w", err)
	}
	temporary := s.state == ""
	if temporary {
		if s.state, err = os.MkdirTemp("", "ichor-bench-fleet-"); err != nil {
			return fmt.Errorf("folder of the stack: %w", err)
		}
	}
	figures, err := measure(ctx, s)
	if err != nil {
		return fmt.Errorf("%w; the stack's folder is kept: %s", err, s.state)
	}
	missed := report.Write(os.Stdout, s.results, s.chapter(), figures.of(s))
	if temporary {
		missed = errors.Join(missed, os.RemoveAll(s.state))
	}
	return missed
}
