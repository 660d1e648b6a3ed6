// SPDX-License-Identifier: Apache-2.0

// Package faults attacks a world: it kills, pauses, ends and cuts off its parts, one after the other on each of two sides
// (etcd, and the servers), so that faults of both meet. A seed decides what happens when; within a run every kind of
// fault occurs.
package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"maesh.dev/ichor/test/chaos/wire"
	"maesh.dev/ichor/test/chaos/world"
)

// Fault is something that is done to a world, and undone after a while.
type Fault struct {
	Name string
	// Lasts is how long; 0 for what is over at once.
	Lasts time.Duration
	begin func(w *world.World, r *rand.Rand) (undo func() error, what string, err error)
}

// Event is a fault that happened.
type Event struct {
	At    time.Duration `json:"at"`
	Lasts time.Duration `json:"lasts"`
	What  string        `json:"what"`
}

// longer is longer than every timeout between two parts: the election's (2 s), the balancer's three checks (9 s) and the
// clients' own (10 s).
const longer = 12 * time.Second

func parts(name string, lasts time.Duration, choose func(*world.World, *rand.Rand) []*world.Part, do, undo func(*world.Part) error) Fault {
	return Fault{name, lasts, func(w *world.World, r *rand.Rand) (func() error, string, error) {
		var faults []error
		chosen, names := choose(w, r), name
		for _, part := range chosen {
			faults = append(faults, do(part))
			names += " " + part.Name
		}
		return func() error {
			var faults []error
			for _, part := range chosen {
				faults = append(faults, undo(part))
			}
			return errors.Join(faults...)
		}, names, errors.Join(faults...)
	}}
}

func wires(name string, lasts time.Duration, state wire.State, choose func(*world.World, *rand.Rand) ([]*wire.Wire, string)) Fault {
	return Fault{name, lasts, func(w *world.World, r *rand.Rand) (func() error, string, error) {
		chosen, which := choose(w, r)
		for _, each := range chosen {
			each.Set(state)
		}
		return func() error {
			for _, each := range chosen {
				each.Set(wire.Whole)
			}
			return nil
		}, name + " " + which, nil
	}}
}

func nothing(*world.Part) error { return nil }

// Etcd is what is done to etcd and the ways to it.
func Etcd() []Fault {
	member := func(w *world.World, r *rand.Rand) []*world.Part { return []*world.Part{w.Etcd[r.IntN(world.Members)]} }
	two := func(w *world.World, r *rand.Rand) []*world.Part {
		spared := r.IntN(world.Members)
		return []*world.Part{w.Etcd[(spared+1)%world.Members], w.Etcd[(spared+2)%world.Members]}
	}
	all := func(w *world.World, _ *rand.Rand) []*world.Part { return w.Etcd[:] }
	peer := func(w *world.World, r *rand.Rand) ([]*wire.Wire, string) {
		n := r.IntN(world.Members)
		return []*wire.Wire{w.Peer[n]}, w.Etcd[n].Name
	}
	clients := func(w *world.World, r *rand.Rand) ([]*wire.Wire, string) {
		n := r.IntN(world.Members)
		out := []*wire.Wire{w.KubeEtcd[n]}
		for each := range world.Replicas {
			out = append(out, w.IchorEtcd[each][n])
		}
		return out, w.Etcd[n].Name
	}
	return []Fault{
		parts("kill", 0, member, (*world.Part).Kill, nothing),
		parts("pause two (no quorum):", 6*time.Second, two, (*world.Part).Pause, (*world.Part).Resume),
		parts("kill all:", 0, all, (*world.Part).Kill, nothing),
		wires("cut off from its peers (silence):", 6*time.Second, wire.Silent, peer),
		wires("cut off from the servers (resets):", 5*time.Second, wire.Broken, clients),
		parts("pause", 8*time.Second, member, (*world.Part).Pause, (*world.Part).Resume),
		parts("end orderly", 0, member, (*world.Part).End, nothing),
		parts("kill two at once:", 0, two, (*world.Part).Kill, nothing),
		wires("cut off from its peers (resets):", 5*time.Second, wire.Broken, peer),
		wires("cut off from the servers (silence):", longer, wire.Silent, clients),
	}
}

// Servers is what is done to the servers and the ways between them. The first ichor-apiserver is never killed, so that it
// can be seen whether one that lives through all of it grows.
func Servers() []Fault {
	mortal := func(w *world.World, r *rand.Rand) []*world.Part {
		return []*world.Part{w.Ichor[1+r.IntN(world.Replicas-1)]}
	}
	both := func(w *world.World, _ *rand.Rand) []*world.Part { return w.Ichor[1:] }
	any := func(w *world.World, r *rand.Rand) []*world.Part {
		return []*world.Part{w.Ichor[r.IntN(world.Replicas)]}
	}
	kube := func(w *world.World, _ *rand.Rand) []*world.Part { return []*world.Part{w.Kube} }
	replica := func(w *world.World, r *rand.Rand) ([]*wire.Wire, string) {
		n := r.IntN(world.Replicas)
		return []*wire.Wire{w.KubeIchor[n]}, world.IchorName(n)
	}
	toKube := func(w *world.World, r *rand.Rand) ([]*wire.Wire, string) {
		n := r.IntN(world.Replicas)
		return []*wire.Wire{w.IchorKube[n]}, world.IchorName(n)
	}
	toEtcd := func(w *world.World, r *rand.Rand) ([]*wire.Wire, string) {
		n := r.IntN(world.Replicas)
		return w.IchorEtcd[n][:], world.IchorName(n)
	}
	front := func(w *world.World, _ *rand.Rand) ([]*wire.Wire, string) {
		return []*wire.Wire{w.Front}, w.Kube.Name
	}
	return []Fault{
		parts("kill", 0, mortal, (*world.Part).Kill, nothing),
		wires("cut off from the kube-apiserver before it (resets):", 4*time.Second, wire.Broken, replica),
		parts("pause", longer, any, (*world.Part).Pause, (*world.Part).Resume),
		parts("kill", 0, kube, (*world.Part).Kill, nothing),
		wires("cut off from etcd (resets):", 5*time.Second, wire.Broken, toEtcd),
		wires("cut off from those it asks for rights (silence):", longer, wire.Silent, toKube),
		parts("pause", longer, kube, (*world.Part).Pause, (*world.Part).Resume),
		wires("cut off from the kube-apiserver before it (silence):", longer, wire.Silent, replica),
		parts("kill two at once:", 0, both, (*world.Part).Kill, nothing),
		wires("clients cut off (resets):", 3*time.Second, wire.Broken, front),
		wires("cut off from etcd (silence):", longer, wire.Silent, toEtcd),
		wires("clients cut off (silence):", 5*time.Second, wire.Silent, front),
		parts("end orderly", 0, mortal, (*world.Part).End, nothing),
	}
}

// Attack does everything again and again until the time is over, with a pause after each: first in the order above, so
// that a short attack has the worst in it, then in orders that the seed gives. Each fault is undone before the next of
// its side begins; longest bounds how long one lasts.
func Attack(ctx context.Context, w *world.World, seed uint64, pause, longest time.Duration) ([]Event, error) {
	start := time.Now()
	var mu sync.Mutex
	var events []Event
	var faults []error
	var group sync.WaitGroup
	for side, all := range [][]Fault{Etcd(), Servers()} {
		r := rand.New(rand.NewPCG(seed, uint64(side)))
		group.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				order := r.Perm(len(all))
				if round == 0 {
					slices.Sort(order)
				}
				for _, n := range order {
					lasts := min(all[n].Lasts, longest)
					wait(ctx, pause/2+time.Duration(r.Int64N(int64(pause))))
					if ctx.Err() != nil {
						return
					}
					at := time.Since(start)
					undo, what, err := all[n].begin(w, r)
					wait(ctx, lasts)
					err = errors.Join(err, undo())
					mu.Lock()
					events, faults = append(events, Event{at, lasts, what}), append(faults, err)
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return events, errors.Join(faults...)
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// String is one line of a table.
func (e Event) String() string {
	return fmt.Sprintf("%6.1fs %-60s %4.0fs", e.At.Seconds(), e.What, e.Lasts.Seconds())
}
