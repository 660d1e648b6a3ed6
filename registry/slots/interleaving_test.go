// SPDX-License-Identifier: Apache-2.0

package slots_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"maesh.dev/ichor/registry/slots"
)

var errCrash = errors.New("crash")

// actor is one of those who act at the same time; it returns when it is done.
type actor func(ctx context.Context, f *fakeStore, gate *slots.Gate)

func approver(name string, attempts int) actor { return named(name, "", attempts) }

// named approves a machine under a hostname.
func named(name, hostname string, attempts int) actor {
	return func(ctx context.Context, f *fakeStore, gate *slots.Gate) {
		_ = approve(ctx, f, gate, name, hostname, attempts)
	}
}

func reaper(ctx context.Context, _ *fakeStore, gate *slots.Gate) { _, _ = gate.Reap(ctx, "prod") }

// remover deletes a machine and frees its slot, as the API server does after a deletion.
func remover(name string) actor {
	return func(ctx context.Context, f *fakeStore, gate *slots.Gate) {
		machine, err := f.Machine(ctx, name)
		if err != nil || f.wait() != nil {
			return
		}
		f.mu.Lock()
		delete(f.machines, name)
		f.written()
		f.mu.Unlock()
		_ = gate.Release(ctx, "prod", machine.UID)
	}
}

// TestEveryInterleavingKeepsTheLimit drives the real code through every order in which the steps of several actors can
// follow each other, and through a crash of one of them before each of its steps, and holds every stored version to the
// invariant.
func TestEveryInterleavingKeepsTheLimit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		count   int32
		actors  []actor
		crashes bool
	}{
		"two machines for one free slot":           {0, []actor{approver("a", 2), approver("b", 2)}, true},
		"one machine approved twice, and a reaper": {0, []actor{approver("a", 2), approver("a", 1), reaper}, false},
		"two machines and a reaper":                {0, []actor{approver("a", 1), approver("b", 1), reaper}, false},
		"an approval, a crash and two reapers":     {0, []actor{approver("a", 1), reaper, reaper}, true},
		"one machine under two hostnames":          {1, []actor{named("a", "cp-1", 2), named("a", "cp-2", 1)}, true},
		"approved, deleted, and another waits":     {0, []actor{approver("a", 1), remover("a"), approver("b", 1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := explorer{t: t, count: tc.count, actors: tc.actors, crashes: tc.crashes}
			runs := e.explore()
			t.Logf("%d interleavings", runs)
			if runs < 20 {
				t.Errorf("only %d interleavings: the scheduler explores nothing", runs)
			}
		})
	}
}

// explorer runs the actors again and again, each time along another schedule, until there is no other.
type explorer struct {
	t       *testing.T
	count   int32
	actors  []actor
	crashes bool
}

// choice is one point of a schedule: which of the possible moves was taken.
type choice struct{ taken, of int }

func (e *explorer) explore() int {
	var schedule []choice
	for runs := 1; ; runs++ {
		schedule = e.run(schedule)
		for len(schedule) > 0 && schedule[len(schedule)-1].taken+1 == schedule[len(schedule)-1].of {
			schedule = schedule[:len(schedule)-1]
		}
		if len(schedule) == 0 || e.t.Failed() {
			return runs
		}
		schedule[len(schedule)-1].taken++
		if runs > 2_000_000 {
			e.t.Fatal("more interleavings than the test is made for")
		}
	}
}

// player is one actor of a run: it asks for its turn, is let go on or crashed, and ends.
type player struct {
	ask   chan struct{}
	grant chan error
	done  bool
}

// run follows the schedule and, beyond its end, takes the first possible move. It returns what was taken.
func (e *explorer) run(schedule []choice) []choice {
	tokens, now := 0, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newFakeStore()
	f.addCluster("prod", e.count)
	f.addMachine("a", "prod")
	f.addMachine("b", "prod")
	f.check = func(f *fakeStore) { verify(e.t, f) }
	current := -1
	players := make([]*player, len(e.actors))
	f.turn = func() error {
		p := players[current]
		p.ask <- struct{}{}
		return <-p.grant
	}
	gate := slots.NewGate(f, slots.WithGrace(0), slots.WithClock(func() time.Time { return now }),
		slots.WithTokens(func() string { tokens++; return fmt.Sprint(tokens) }))
	// Only one actor runs at a time: the one that was let go on last, until it asks again or ends.
	for i, act := range e.actors {
		p := &player{ask: make(chan struct{}), grant: make(chan error)}
		players[i], current = p, i
		go func() {
			defer close(p.ask)
			act(context.Background(), f, gate)
		}()
		if _, waits := <-p.ask; !waits {
			p.done = true
		}
	}
	var taken []choice
	crashed := false
	for {
		var waiting []int
		for i, p := range players {
			if !p.done {
				waiting = append(waiting, i)
			}
		}
		if len(waiting) == 0 {
			return taken
		}
		moves := len(waiting)
		if e.crashes && !crashed {
			moves *= 2
		}
		next := choice{0, moves}
		if len(taken) < len(schedule) {
			next = schedule[len(taken)]
		}
		taken = append(taken, next)
		current = waiting[next.taken%len(waiting)]
		var outcome error
		if next.taken >= len(waiting) {
			outcome, crashed = errCrash, true
		}
		p := players[current]
		p.grant <- outcome
		if _, waits := <-p.ask; !waits {
			p.done = true
		}
	}
}
