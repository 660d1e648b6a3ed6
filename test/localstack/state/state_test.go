// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/test/localstack/state"
)

func open(t *testing.T) state.Dir {
	t.Helper()
	d, err := state.Open(filepath.Join(t.TempDir(), "stack"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestAFolderIsHeldByOneStack(t *testing.T) {
	t.Parallel()
	d := open(t)
	lock, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lock(); !errors.Is(err, state.ErrHeld) {
		t.Errorf("second lock: %v, want %v", err, state.ErrHeld)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	again, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestTheRecordSurvives(t *testing.T) {
	t.Parallel()
	d := open(t)
	if got, err := d.Load(); got != nil || err != nil {
		t.Fatalf("record of a new folder: %v, %v", got, err)
	}
	want := state.Record{Range: netip.MustParsePrefix("127.17.0.0/20"), FirstMachine: "hollow-001"}
	if err := d.Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := d.Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Range.String()+want.FirstMachine, got.Range.String()+got.FirstMachine); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyLivingProcessesAreListed(t *testing.T) {
	t.Parallel()
	d := open(t)
	command := exec.Command("sleep", "60")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if err := d.SetProcess("sleeper", command.Process.Pid); err != nil {
		t.Fatal(err)
	}
	processes, err := d.Processes()
	if err != nil || len(processes) != 1 || processes[0].PID != command.Process.Pid {
		t.Fatalf("processes %v, %v", processes, err)
	}
	if err := processes[0].Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait() // killed
	if after, err := d.Processes(); err != nil || len(after) != 0 {
		t.Errorf("after its end: %v, %v", after, err)
	}
	if err := processes[0].Signal(syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal after its end: %v, want %v", err, os.ErrProcessDone)
	}
}

func TestAProcessWithTheSameNumberIsAnother(t *testing.T) {
	t.Parallel()
	p := state.Process{PID: os.Getpid(), Started: "1"}
	if p.Alive() {
		t.Error("a process with another start time counts as the recorded one")
	}
}
