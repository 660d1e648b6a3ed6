// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"maesh.dev/ichor/test/hollow/kubernetes/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// change is one call of Spec.Changed.
type change struct {
	pid    int
	reason error
}

// start runs a shell script as a child and returns the channel of its changes.
func start(t *testing.T, script string) (*process.Child, <-chan change, string) {
	t.Helper()

	changes := make(chan change, 64)
	logFile := filepath.Join(t.TempDir(), "logs", "child.log")

	child := process.Start(process.Spec{
		Name: "child", Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"GREETING=hello"},
		LogFile: logFile, Logger: slog.New(slog.DiscardHandler),
		Changed: func(pid int, reason error) { changes <- change{pid, reason} },
	})
	t.Cleanup(child.Kill)

	return child, changes, logFile
}

func next(t *testing.T, changes <-chan change) change {
	t.Helper()

	select {
	case c := <-changes:
		return c
	case <-time.After(20 * time.Second):
		t.Fatal("no change of the child within 20 s")

		return change{}
	}
}

func TestAChildThatEndsIsStartedAgain(t *testing.T) {
	t.Parallel()

	_, changes, logFile := start(t, `echo "$GREETING"; exit 3`)

	first := next(t, changes)
	ended := next(t, changes)
	second := next(t, changes)

	if first.pid == 0 || second.pid == 0 || first.pid == second.pid {
		t.Errorf("pids of the first and second run: got %d and %d, want two different ones", first.pid, second.pid)
	}

	if ended.pid != 0 || ended.reason == nil || !strings.Contains(ended.reason.Error(), "exit status 3") {
		t.Errorf("end of the first run: got %+v, want pid 0 and exit status 3", ended)
	}

	output, err := os.ReadFile(logFile)
	if err != nil {
		t.Fatal(err)
	}

	if !strings.HasPrefix(string(output), "hello\n") {
		t.Errorf("log file: got %q, want the child's output", output)
	}
}

func TestAnOrderlyStopLetsTheChildFinish(t *testing.T) {
	t.Parallel()

	child, changes, logFile := start(t, `trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done`)
	next(t, changes)
	waitFor(t, logFile, "ready")

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	child.Stop(ctx)
	waitFor(t, logFile, "bye")
}

func TestAChildThatIgnoresTheStopIsKilledAtTheDeadline(t *testing.T) {
	t.Parallel()

	child, changes, logFile := start(t, `trap '' TERM; echo ready; while :; do sleep 0.05; done`)
	next(t, changes)
	waitFor(t, logFile, "ready")

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()

	child.Stop(ctx)

	if c := next(t, changes); c.reason == nil || !strings.Contains(c.reason.Error(), "killed") {
		t.Errorf("end of the child: got %v, want killed", c.reason)
	}
}

func TestNothingStartsAfterAStop(t *testing.T) {
	t.Parallel()

	child, changes, _ := start(t, `exit 1`)
	next(t, changes)
	child.Kill()

	select {
	case <-child.Done():
	default:
		t.Fatal("Kill returned before the child was done")
	}
}

func TestAMissingExecutableIsReported(t *testing.T) {
	t.Parallel()

	changes := make(chan change, 8)
	child := process.Start(process.Spec{
		Name: "kube", Path: filepath.Join(t.TempDir(), "kube"), LogFile: filepath.Join(t.TempDir(), "log"),
		Logger:  slog.New(slog.DiscardHandler),
		Changed: func(pid int, reason error) { changes <- change{pid, reason} },
	})
	defer child.Kill()

	if c := next(t, changes); c.reason == nil || !strings.Contains(c.reason.Error(), "start kube") {
		t.Errorf("got %v, want the reason why kube did not start", c.reason)
	}
}

// waitFor waits until the log file holds text.
func waitFor(t *testing.T, logFile, text string) {
	t.Helper()

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()

	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		if output, err := os.ReadFile(logFile); err == nil && strings.Contains(string(output), text) {
			return
		}

		if time.Now().After(deadline) {
			t.Fatalf("the child did not write %q within 20 s", text)
		}
	}
}
