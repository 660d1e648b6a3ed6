// SPDX-License-Identifier: Apache-2.0

// Command checks is the part of `make verify` that is written in Go: the rules of dependence and the checks of
// the checkout's files. It prints one line a fault and exits with 1 if there is any.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"

	"maesh.dev/ichor/pkg/codegen/importrules"
	"maesh.dev/ichor/pkg/codegen/treecheck"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	faults, err := run(ctx, ".")
	for _, fault := range faults {
		fmt.Println(fault)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "checks:", err)
	}
	if err != nil || len(faults) > 0 {
		stop()
		os.Exit(1)
	}
}

// run returns the faults of the checkout in dir.
func run(ctx context.Context, dir string) ([]fmt.Stringer, error) {
	var all []fmt.Stringer
	packages, err := importrules.Load(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, violation := range importrules.Check(importrules.Layers, importrules.Outside, packages) {
		all = append(all, violation)
	}
	files, err := checkedIn(ctx, dir)
	if err != nil {
		return all, err
	}
	faults, err := treecheck.Check(os.DirFS(dir), files)
	for _, fault := range faults {
		all = append(all, fault)
	}
	return all, err
}

// checkedIn lists the files that git keeps or would keep: ignored ones are nobody's business.
func checkedIn(ctx context.Context, dir string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of %s: %w: %s", dir, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
}
