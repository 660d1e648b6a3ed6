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

// chapter names the results' file.
const chapter = "api"

// limit bounds the whole run.
const limit = 30 * time.Minute

// settings are what can be told.
type settings struct {
	results, binaries, state, profiles string
	machines, rounds                   int
	idle                               time.Duration
	memory, speed                      bool
}

// stages are what this executable is as a child of itself.
var stages = map[string]func(ctx context.Context, args []string) error{"etcd": serveEtcd, "webhook": serveWebhook}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench api:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) > 1 {
		if stage, found := stages[os.Args[1]]; found {
			return stage(ctx, os.Args[2:])
		}
	}
	var s settings
	flag.StringVar(&s.results, "results", ".local/bench", "folder for the results")
	flag.StringVar(&s.binaries, "bin", "bin", "folder of the programs, as `make build` fills it")
	flag.StringVar(&s.state, "state", "", "folder for everything else, which is kept; without it, one that is removed if all went well")
	flag.StringVar(&s.profiles, "profiles", "", "folder for CPU profiles of the servers during each part; none without it")
	flag.IntVar(&s.machines, "machines", 10000, "how many machines there are")
	flag.IntVar(&s.rounds, "rounds", 1, "how often everything that is repeated is repeated, times what it is anyway")
	flag.DurationVar(&s.idle, "idle", time.Minute, "how long servers rest before their memory is read")
	flag.BoolVar(&s.memory, "memory", true, "measure memory")
	flag.BoolVar(&s.speed, "speed", true, "measure times, bytes and approvals over the limit")
	flag.Parse()
	if flag.NArg() > 0 || s.machines < fewestMachines || s.rounds < 1 {
		return fmt.Errorf("usage: api [-results DIR] [-machines N (%d at least)] [-rounds N] ...; see -help", fewestMachines)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return measure(ctx, s)
}

func measure(ctx context.Context, s settings) (err error) {
	for _, path := range []*string{&s.binaries, &s.results} {
		if *path, err = filepath.Abs(*path); err != nil {
			return fmt.Errorf("find folder: %w", err)
		}
	}
	temporary := s.state == ""
	if temporary {
		// etcd's socket is in it, so its path is short.
		if s.state, err = os.MkdirTemp("", "ichor-bench-api-"); err != nil {
			return fmt.Errorf("folder of the servers: %w", err)
		}
	}
	var rows []report.Row
	for _, part := range []struct {
		wanted bool
		run    func(context.Context, settings) ([]report.Row, error)
	}{{s.speed, measureSpeed}, {s.memory, measureMemory}} {
		if !part.wanted {
			continue
		}
		measured, err := part.run(ctx, s)
		if err != nil {
			return fmt.Errorf("%w; logs are kept in %s", err, s.state)
		}
		rows = append(rows, measured...)
	}
	missed := report.Write(os.Stdout, s.results, chapter, rows)
	if temporary {
		missed = errors.Join(missed, os.RemoveAll(s.state))
	}
	return missed
}

var begun = time.Now()

// say tells what happens, with the seconds since the beginning.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, args...))
}
