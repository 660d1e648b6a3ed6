// SPDX-License-Identifier: Apache-2.0

// Command scan measures how long Ichor takes to find machines in large networks. It runs the search of ichor-controller
// itself, beside nmap and a bare connect loop in a loopback /16 with hollow machines, and in a /20 in which nothing
// answers. Each measured program is a process of its own, so that time and memory are its alone.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"maesh.dev/ichor/test/bench/report"
)

// chapter names the report.
const chapter = "scan"

// stages are what this executable is as a child of itself: it reads its task, a JSON value, from standard input and
// writes its result, another one, to standard output.
var stages = map[string]func(ctx context.Context, in io.Reader, out io.Writer) error{
	"nodes": hostNodes,
	"ours":  stage(scanOurs),
	"bare":  stage(connectBare),
	"dark":  stage(scanDark),
}

func stage[Task, Result any](run func(context.Context, Task) (Result, error)) func(context.Context, io.Reader, io.Writer) error {
	return func(ctx context.Context, in io.Reader, out io.Writer) error {
		var task Task
		if err := json.NewDecoder(in).Decode(&task); err != nil {
			return fmt.Errorf("read the task: %w", err)
		}
		result, err := run(ctx, task)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(result)
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scan:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) == 2 {
		if stage, found := stages[os.Args[1]]; found {
			return stage(ctx, os.Stdin, os.Stdout)
		}
	}
	results := flag.String("results", ".local/bench", "folder that takes scan.json")
	rounds := flag.Int("rounds", 7, "how often each program scans the /16, in changing order")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 {
		return errors.New("usage: scan [-results DIR] [-rounds N]")
	}
	populated, err := measurePopulated(ctx, *rounds)
	if err != nil {
		return fmt.Errorf("scan a /16 with machines: %w", err)
	}
	dark, err := measureDark(ctx)
	if err != nil {
		return fmt.Errorf("scan a /20 in which nothing answers: %w", err)
	}
	return report.Write(os.Stdout, *results, chapter, append(populated, dark...))
}
