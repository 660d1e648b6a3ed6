// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// timing is how long calls took.
type timing struct {
	calls   []time.Duration
	elapsed time.Duration
}

func (t *timing) add(other timing) {
	t.calls = append(t.calls, other.calls...)
	t.elapsed += other.elapsed
}

// rate is calls in a second.
func (t timing) rate() float64 {
	if t.elapsed == 0 {
		return 0
	}
	return float64(len(t.calls)) / t.elapsed.Seconds()
}

// at is the time, in milliseconds, that a share of the calls don't exceed.
func (t timing) at(share float64) float64 {
	if len(t.calls) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t.calls))
	i := int(share * float64(len(sorted)))
	return milliseconds(sorted[min(i, len(sorted)-1)])
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// together has clients make n calls, each the next one that is left. The first error ends it.
func together(ctx context.Context, clients []*caller, n int, call func(ctx context.Context, client *caller, i int) error) (timing, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	took := make([]time.Duration, n)
	var next atomic.Int64
	var group sync.WaitGroup
	start := make(chan struct{})
	for _, client := range clients {
		group.Go(func() {
			<-start
			for {
				i := int(next.Add(1)) - 1
				if i >= n || ctx.Err() != nil {
					return
				}
				began := time.Now()
				if err := call(ctx, client, i); err != nil {
					cancel(err)
					return
				}
				took[i] = time.Since(began)
			}
		})
	}
	began := time.Now()
	close(start)
	group.Wait()
	elapsed := time.Since(began)
	if err := context.Cause(ctx); err != nil {
		return timing{}, err
	}
	return timing{took, elapsed}, nil
}

// inTurns measures both sides, each first in every other round, and adds up.
func inTurns(ctx context.Context, sides []*side, rounds int, one func(ctx context.Context, s *side, round int) (timing, error)) (map[*side]*timing, error) {
	out := map[*side]*timing{}
	for _, s := range sides {
		out[s] = &timing{}
	}
	for round := range rounds {
		order := slices.Clone(sides)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			measured, err := one(ctx, s, round)
			if err != nil {
				return nil, err
			}
			out[s].add(measured)
		}
	}
	return out, nil
}
