// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is a line of `go test -json` (see `go doc test2json`).
type event struct {
	Time        time.Time
	Action      string
	Package     string
	ImportPath  string // of build output
	Test        string
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string
}

// key names a test of a package; the package itself has an empty test.
type key struct{ pkg, test string }

// report counts results and decides what of the tests' output is worth printing.
type report struct {
	out  io.Writer
	each bool

	passed, failed, skipped int
	started                 map[key]time.Time
	output                  map[key][]string
	failedIn                map[string]int
}

func newReport(out io.Writer, each bool) *report {
	return &report{
		out: out, each: each,
		started: map[key]time.Time{}, output: map[key][]string{}, failedIn: map[string]int{},
	}
}

// line takes one line of the stream and reports whether it printed anything.
func (r *report) line(line []byte) bool {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		// go test itself speaks (a bad flag, for example).
		fmt.Fprint(r.out, string(line))
		return true
	}
	at := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		return r.print(e.Output)
	case "start", "run":
		r.started[at] = e.Time
	case "output":
		if e.Test == "" {
			return r.packageOutput(e.Output)
		}
		r.output[at] = append(r.output[at], e.Output)
	case "pass", "fail", "skip":
		return r.finish(e, at)
	}
	return false
}

// packageOutput prints what belongs to no test: results of packages, logs of a TestMain. The lines that only
// repeat a result are left out, and so are packages without tests.
func (r *report) packageOutput(text string) bool {
	trimmed := strings.TrimSpace(text)
	if trimmed == "PASS" || trimmed == "FAIL" || strings.HasPrefix(trimmed, "?") && strings.HasSuffix(trimmed, "[no test files]") {
		return false
	}
	return r.print(text)
}

func (r *report) finish(e event, at key) bool {
	delete(r.started, at)
	output := r.output[at]
	delete(r.output, at)
	if e.Test == "" {
		// A package that fails without a failed test did not build, or its TestMain or a panic ended it.
		if e.Action == "fail" && r.failedIn[e.Package] == 0 {
			r.failed++
			r.flush(e.Package)
		}
		return false
	}
	switch e.Action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
	case "fail":
		r.failed++
		r.failedIn[e.Package]++
		r.print(fmt.Sprintf("--- FAIL: %s %s (%.1fs)\n", e.Package, e.Test, e.Elapsed))
		for _, text := range output {
			r.print(text)
		}
		return true
	}
	if r.each && !strings.Contains(e.Test, "/") {
		return r.print(fmt.Sprintf("--- %s: %s (%.1fs)\n", strings.ToUpper(e.Action), e.Test, e.Elapsed))
	}
	return false
}

// flush prints what the unfinished tests of a package that died had to say.
func (r *report) flush(pkg string) {
	var unfinished []key
	for at := range r.output {
		if at.pkg == pkg {
			unfinished = append(unfinished, at)
		}
	}
	slices.SortFunc(unfinished, func(a, b key) int { return strings.Compare(a.test, b.test) })
	for _, at := range unfinished {
		for _, text := range r.output[at] {
			r.print(text)
		}
		delete(r.output, at)
	}
}

// stillRunning names the tests, or else the packages, that run at the time.
func (r *report) stillRunning(now time.Time) {
	const most = 8
	var tests, packages []string
	for at, since := range r.started {
		text := fmt.Sprintf("%s %s for %ds", at.pkg, at.test, int(now.Sub(since).Seconds()))
		if at.test == "" {
			packages = append(packages, text)
		} else {
			tests = append(tests, text)
		}
	}
	running := tests
	if len(running) == 0 {
		running = packages
	}
	slices.Sort(running)
	switch {
	case len(running) == 0:
		r.print("... compiling\n")
	case len(running) > most:
		r.print(fmt.Sprintf("... running: %s and %d more\n", strings.Join(running[:most], ", "), len(running)-most))
	default:
		r.print(fmt.Sprintf("... running: %s\n", strings.Join(running, ", ")))
	}
}

func (r *report) summary() string {
	return summary(r.passed, r.failed, r.skipped)
}

// summary is the closing line of a run.
func summary(passed, failed, skipped int) string {
	text := fmt.Sprintf("%d passed, %d failed", passed, failed)
	if skipped > 0 {
		text += fmt.Sprintf(", %d skipped", skipped)
	}
	return text
}

func (r *report) print(text string) bool {
	fmt.Fprint(r.out, text)
	return true
}
