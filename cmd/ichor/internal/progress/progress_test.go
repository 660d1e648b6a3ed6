// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

var now = time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)

func at(phase v1alpha1.MachinePhase, stage v1alpha1.MachineStage, conditions ...metav1.Condition) *v1alpha1.TalosMachine {
	approved := metav1.NewTime(now.Add(-5 * time.Minute))
	return &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "m-1"},
		Spec: v1alpha1.TalosMachineSpec{
			Hostname: "cp-2", ApprovalState: v1alpha1.ApprovalApproved, Approval: &v1alpha1.MachineApproval{At: &approved},
		},
		Status: v1alpha1.TalosMachineStatus{Phase: phase, Stage: stage, Conditions: conditions},
	}
}

func waits(kind, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Message: message, LastTransitionTime: metav1.NewTime(now.Add(-2 * time.Minute))}
}

var ready = metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}

func TestMachinesTellTransitionsOnly(t *testing.T) {
	t.Parallel()
	board := NewMachines([]string{"m-1"})
	for _, step := range []struct {
		name    string
		machine *v1alpha1.TalosMachine
		want    string
	}{
		{"first seen before the controller looked", at(v1alpha1.PhasePending, v1alpha1.StageMaintenance), "cp-2 Approved (maintenance)"},
		{"nothing changed", at(v1alpha1.PhasePending, v1alpha1.StageMaintenance), ""},
		{"it waits for something", at(v1alpha1.PhaseConfiguring, v1alpha1.StageMaintenance, waits(v1alpha1.ConditionConfigApplied, "another control plane joins first")), "cp-2 Configuring (maintenance): another control plane joins first"},
		{"what it waits for is said once", at(v1alpha1.PhaseConfiguring, v1alpha1.StageMaintenance, waits(v1alpha1.ConditionConfigApplied, "another control plane joins first")), ""},
		{"the stage says the same as the phase", at(v1alpha1.PhaseInstalling, v1alpha1.StageInstalling, waits(v1alpha1.ConditionInstalled, "installs")), "cp-2 Installing: installs"},
		{"done", at(v1alpha1.PhaseReady, v1alpha1.StageRunning, ready), "cp-2 Ready (running)"},
	} {
		if diff := cmp.Diff(step.want, board.Observe(step.machine, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	if !board.Done() || board.Err() != nil {
		t.Errorf("done %v, error %v; want done without an error", board.Done(), board.Err())
	}
}

func TestMachinesOfOthersAreNotTold(t *testing.T) {
	t.Parallel()
	board := NewMachines([]string{"m-2"})
	if line := board.Observe(at(v1alpha1.PhaseReady, v1alpha1.StageRunning, ready), now); line != "" || board.Done() {
		t.Errorf("told %q, done %v", line, board.Done())
	}
}

func TestMachinesFail(t *testing.T) {
	t.Parallel()
	board := NewMachines([]string{"m-1", "m-2"})
	board.Observe(at(v1alpha1.PhaseFailed, v1alpha1.StageMaintenance, waits(v1alpha1.ConditionInstalled, "the disk is gone")), now)
	if board.Done() {
		t.Error("done before the second machine is")
	}
	board.Vanished("m-2", now)
	want := "2 machines didn't become Ready: cp-2: the disk is gone; m-2: its object was deleted"
	if err := board.Err(); !board.Done() || err == nil || err.Error() != want {
		t.Errorf("done %v, error %v; want %s", board.Done(), err, want)
	}
}

func TestMachinesAreDrawn(t *testing.T) {
	t.Parallel()
	board := NewMachines([]string{"m-1"})
	for _, test := range []struct {
		name    string
		machine *v1alpha1.TalosMachine
		width   int
		want    string
	}{
		{"with what it waits for and since when", at(v1alpha1.PhaseInstalling, v1alpha1.StageInstalling, waits(v1alpha1.ConditionInstalled, "installs on S1")), 0, "cp-2  ▰▰▰▱▱▱  Installing  5m  installs on S1 (for 2m)"},
		{"cut to the terminal's width", at(v1alpha1.PhaseInstalling, v1alpha1.StageInstalling, waits(v1alpha1.ConditionInstalled, "installs on S1")), 30, "cp-2  ▰▰▰▱▱▱  Installing  5m …"},
		{"when it is done", at(v1alpha1.PhaseReady, v1alpha1.StageRunning, ready), 0, "cp-2  ▰▰▰▰▰▰  Ready  5m"},
	} {
		board.Observe(test.machine, now)
		if diff := cmp.Diff([]string{test.want}, board.Lines(now, screen.Plain, test.width)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func scanned(spec, answered string, phase v1alpha1.DiscoveryPhase, done int32) *v1alpha1.TalosCluster {
	return &v1alpha1.TalosCluster{
		Spec:   v1alpha1.TalosClusterSpec{Discovery: v1alpha1.Discovery{ScanRequest: spec}},
		Status: v1alpha1.TalosClusterStatus{Discovery: v1alpha1.DiscoveryStatus{ScanRequest: answered, Phase: phase, Done: done, Total: 256}},
	}
}

func TestScanIsAnswered(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		cluster *v1alpha1.TalosCluster
		want    bool
	}{
		{"not by an older scan", scanned("mine", "older", v1alpha1.DiscoveryIdle, 256), false},
		{"not while it runs", scanned("mine", "older", v1alpha1.DiscoveryScanning, 10), false},
		{"by its own", scanned("mine", "mine", v1alpha1.DiscoveryIdle, 256), true},
		{"by a later one that took its place", scanned("later", "later", v1alpha1.DiscoveryIdle, 256), true},
		{"not while a later one, that took its place, runs", scanned("later", "older", v1alpha1.DiscoveryScanning, 3), false},
	} {
		board := NewScan("prod", "mine", now)
		board.Observe(test.cluster)
		if board.answered != test.want {
			t.Errorf("%s: answered %v", test.name, board.answered)
		}
	}
}

func TestScanIsDrawn(t *testing.T) {
	t.Parallel()
	board := NewScan("prod", "mine", now.Add(-12*time.Second))
	board.Observe(scanned("mine", "", v1alpha1.DiscoveryScanning, 128))
	want := []string{"prod  ▰▰▰▰▰▰▰▰▱▱▱▱▱▱▱▱  12s  scanning 128 of 256 addresses: 0 in maintenance, 0 already configured, 0 not Talos, 0 silent"}
	if diff := cmp.Diff(want, board.Lines(now, screen.Plain, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// terminal is a terminal that keeps all that was drawn.
type terminal struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (t *terminal) Write(text []byte) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.text.Write(text)
}

func (t *terminal) String() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.text.String()
}

func liveScreen(out *terminal, typed string) Screen {
	made := Screen{
		Out: out, Redraw: true, Style: screen.Plain, Now: func() time.Time { return now },
		options: []tea.ProgramOption{tea.WithWindowSize(100, 20), tea.WithEnvironment([]string{"TERM=xterm"})},
	}
	if typed != "" {
		made.In = strings.NewReader(typed)
	}
	return made
}

func TestLiveViewLeavesTheOutcome(t *testing.T) {
	t.Parallel()
	out := &terminal{}
	board := NewMachines([]string{"m-1"})
	failure := errors.New("it failed")
	err := liveScreen(out, "").Follow(t.Context(), board, func(_ context.Context, update func(func() string)) error {
		update(func() string { return board.Observe(at(v1alpha1.PhaseInstalling, v1alpha1.StageInstalling), now) })
		update(func() string { return board.Observe(at(v1alpha1.PhaseReady, v1alpha1.StageRunning, ready), now) })
		return failure
	})
	if !errors.Is(err, failure) {
		t.Errorf("error %v, want the work's", err)
	}
	if !strings.Contains(out.String(), "▰▰▰▰▰▰") || !strings.Contains(out.String(), "Ready") {
		t.Errorf("the outcome isn't drawn: %q", out.String())
	}
}

func TestLiveViewEndsWithCtrlC(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	board := NewMachines([]string{"m-1"})
	err := liveScreen(&terminal{}, "\x03").Follow(ctx, board, func(ctx context.Context, _ func(func() string)) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, cli.ErrInterrupted) {
		t.Errorf("error %v, want %v", err, cli.ErrInterrupted)
	}
}

func TestPlainLinesHaveTimes(t *testing.T) {
	t.Parallel()
	out := &terminal{}
	plain := Screen{Out: out, Now: func() time.Time { return now }}
	err := plain.Follow(t.Context(), NewMachines(nil), func(_ context.Context, update func(func() string)) error {
		update(func() string { return "cp-2 Installing" })
		update(func() string { return "" })
		update(func() string { return "cp-2 Ready" })
		return nil
	})
	want := "2026-11-30T09:00:00Z cp-2 Installing\n2026-11-30T09:00:00Z cp-2 Ready\n"
	if diff := cmp.Diff(want, out.String()); err != nil || diff != "" {
		t.Errorf("error %v; (-want +got):\n%s", err, diff)
	}
}
