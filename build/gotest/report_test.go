// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReport(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		events  []string
		each    bool
		printed string
		summary string
	}{
		"a passing package is one line": {
			events: []string{
				`{"Action":"start","Package":"p"}`,
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}`,
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Output":"PASS\n"}`,
				`{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}`,
				`{"Action":"pass","Package":"p"}`,
			},
			printed: "ok  \tp\t0.1s\n",
			summary: "1 passed, 0 failed",
		},
		"each test gets a line when asked": {
			events: []string{
				`{"Action":"pass","Package":"p","Test":"TestA/sub","Elapsed":1}`,
				`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1.25}`,
			},
			each:    true,
			printed: "--- PASS: TestA (1.2s)\n",
			summary: "2 passed, 0 failed",
		},
		"a failed test shows its output and counts once": {
			events: []string{
				`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: got 1, want 2\n"}`,
				`{"Action":"fail","Package":"p","Test":"TestA","Elapsed":0.5}`,
				`{"Action":"output","Package":"p","Output":"FAIL\n"}`,
				`{"Action":"output","Package":"p","Output":"FAIL\tp\t0.5s\n"}`,
				`{"Action":"fail","Package":"p"}`,
			},
			printed: "--- FAIL: p TestA (0.5s)\n    a_test.go:1: got 1, want 2\nFAIL\tp\t0.5s\n",
			summary: "0 passed, 1 failed",
		},
		"a build that fails counts as a failure": {
			events: []string{
				`{"Action":"build-output","ImportPath":"p","Output":"./a.go:1: syntax error\n"}`,
				`{"Action":"fail","Package":"p","FailedBuild":"p"}`,
			},
			printed: "./a.go:1: syntax error\n",
			summary: "0 passed, 1 failed",
		},
		"a panic shows what the running test had said": {
			events: []string{
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: boom\n"}`,
				`{"Action":"fail","Package":"p"}`,
			},
			printed: "panic: boom\n",
			summary: "0 passed, 1 failed",
		},
		"a skipped test is told": {
			events:  []string{`{"Action":"skip","Package":"p","Test":"TestA"}`},
			summary: "0 passed, 0 failed, 1 skipped",
		},
		"what isn't an event is printed as it is": {
			events:  []string{"flag provided but not defined: -x"},
			printed: "flag provided but not defined: -x\n",
			summary: "0 passed, 0 failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			report := newReport(&out, test.each)
			for _, line := range test.events {
				report.line([]byte(line + "\n"))
			}
			if diff := cmp.Diff(test.printed, out.String()); diff != "" {
				t.Errorf("printed (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.summary, report.summary()); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
		})
	}
}

func TestALongSilenceNamesTheRunningTests(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	report := newReport(&out, false)
	report.line([]byte(`{"Time":"2026-01-02T03:04:05Z","Action":"start","Package":"p"}`))
	report.line([]byte(`{"Time":"2026-01-02T03:04:05Z","Action":"run","Package":"p","Test":"TestA"}`))
	report.stillRunning(time.Date(2026, 1, 2, 3, 4, 50, 0, time.UTC))
	if diff := cmp.Diff("... running: p TestA for 45s\n", out.String()); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
}
