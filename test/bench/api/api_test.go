// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestRatesAndShares(t *testing.T) {
	t.Parallel()
	var all timing
	if all.rate() != 0 || all.at(0.5) != 0 {
		t.Errorf("of nothing: %v, %v", all.rate(), all.at(0.5))
	}
	all.add(timing{[]time.Duration{4 * time.Millisecond, time.Millisecond}, time.Second})
	all.add(timing{[]time.Duration{2 * time.Millisecond, 3 * time.Millisecond}, time.Second})
	if all.rate() != 2 {
		t.Errorf("rate: want 2, got %v", all.rate())
	}
	for share, want := range map[float64]float64{0: 1, 0.5: 3, 0.99: 4} {
		if got := all.at(share); got != want {
			t.Errorf("share %v: want %v ms, got %v", share, want, got)
		}
	}
}

func TestClientsMakeEveryCallOnce(t *testing.T) {
	t.Parallel()
	clients := []*caller{{}, {}, {}}
	var made [100]atomic.Int32
	took, err := together(t.Context(), clients, len(made), func(_ context.Context, _ *caller, i int) error {
		made[i].Add(1)
		return nil
	})
	if err != nil || len(took.calls) != len(made) {
		t.Errorf("%d calls, %v", len(took.calls), err)
	}
	for i := range made {
		if n := made[i].Load(); n != 1 {
			t.Errorf("call %d was made %d times", i, n)
		}
	}
	broken := errors.New("broken")
	if _, err := together(t.Context(), clients, 100, func(_ context.Context, _ *caller, i int) error {
		if i == 5 {
			return broken
		}
		return nil
	}); !errors.Is(err, broken) {
		t.Errorf("want the call's error, got %v", err)
	}
}

func TestSidesTakeTurns(t *testing.T) {
	t.Parallel()
	a, b := &side{name: "a"}, &side{name: "b"}
	order := ""
	if _, err := inTurns(t.Context(), []*side{a, b}, 3, func(_ context.Context, s *side, _ int) (timing, error) {
		order += s.name
		return timing{}, nil
	}); err != nil || order != "abbaab" {
		t.Errorf("order %s, %v", order, err)
	}
}

func TestMachinesAreRealistic(t *testing.T) {
	t.Parallel()
	machine := newMachine("example.dev", 4711)
	machine.Status = seen(4711)
	if disks, links := len(machine.Status.Inventory.Disks), len(machine.Status.Inventory.Links); disks != 8 || links != 4 {
		t.Errorf("%d disks and %d links, want 8 and 4", disks, links)
	}
	approve(machine, v1alpha1.RoleWorker)
	if machine.Spec.Approval.MaintenanceFingerprint != machine.Status.MaintenanceFingerprint || machine.Spec.Disks[0].Match.Serial == machine.Spec.Disks[1].Match.Serial {
		t.Errorf("approval: %+v, disks %+v", machine.Spec.Approval, machine.Spec.Disks)
	}
	seenNames := map[string]bool{}
	for n := range 70000 {
		seenNames[macOf(n, 0)] = true
	}
	if len(seenNames) != 70000 {
		t.Errorf("%d addresses of 70000 machines", len(seenNames))
	}
}

func TestWhatIsReadOfAnswers(t *testing.T) {
	t.Parallel()
	for _, page := range []string{
		`{"kind":"L","apiVersion":"v1","metadata":{"continue":"abc","remainingItemCount":3},"items":[{"a":[1],"kind":"x"}]}`,
		`{"apiVersion":"v1","items":[{"a":[1],"kind":"x","metadata":{"continue":"no"}}],"kind":"L","metadata":{"continue":"abc"}}`,
	} {
		if got, err := continuation([]byte(page)); err != nil || got != "abc" {
			t.Errorf("continuation of %s: %q, %v", page, got, err)
		}
	}
	if _, err := continuation([]byte("no page")); err == nil {
		t.Error("a continuation was read in no page")
	}
	if got, err := parseResident("VmHWM:\t 9 kB\nVmRSS:\t  153600 kB\n"); err != nil || got != 150 {
		t.Errorf("resident: %v, %v", got, err)
	}
	if _, err := parseResident("VmHWM:\t 9 kB\n"); err == nil {
		t.Error("a status without resident memory was read")
	}
}

func TestWatchersCountChanges(t *testing.T) {
	t.Parallel()
	event := func(version int) string {
		return fmt.Sprintf(`{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"%d"},"padding":%q}}`, version, strings.Repeat("x", 100_000)) + "\n"
	}
	heard := 0
	w := &watcher{last: "1"}
	if n, err := w.read(strings.NewReader(event(7)+event(9)), 3, func() { heard++ }); !errors.Is(err, io.EOF) || n != 2 || heard != 2 || w.last != "9" {
		t.Errorf("of a stream that ended: %d events, last %s, %v", n, w.last, err)
	}
	if n, err := w.read(strings.NewReader(event(10)+event(11)), 1, func() { heard++ }); err != nil || n != 1 || w.last != "10" {
		t.Errorf("of a stream that goes on: %d events, last %s, %v", n, w.last, err)
	}
	if _, err := w.read(strings.NewReader(`{"type":"ERROR","object":{"code":410}}`+"\n"), 1, func() { heard++ }); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("an error in the stream: %v", err)
	}
}

func TestPartsAddUp(t *testing.T) {
	t.Parallel()
	f := &figures{ours: &side{name: "ours"}, rival: &side{name: "rival"}}
	measured := map[*side]*timing{
		f.ours:  {[]time.Duration{time.Millisecond, time.Millisecond, time.Millisecond}, time.Second},
		f.rival: {[]time.Duration{2 * time.Millisecond, 2 * time.Millisecond}, time.Second},
	}
	f.rate("rate", measured, 1.5)
	f.quantile("p99", measured, 0.99, 1)
	var got []string
	for _, row := range f.rows {
		got = append(got, row.Name+" "+row.Missed())
	}
	if diff := cmp.Diff([]string{"rate ", "p99 "}, got); diff != "" || f.rows[0].Ratio != 1.5 || f.rows[1].Ratio != 0.5 {
		t.Errorf("rows %+v: %s", f.rows, diff)
	}
	if got := sum(map[string]float64{"a": 1, "b": 2}); got != 3 {
		t.Errorf("sum: %v", got)
	}
}
