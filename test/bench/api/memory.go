// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"maesh.dev/ichor/test/bench/report"
)

// measured is a server whose memory counts, with where it takes a request to collect garbage.
type measured struct {
	*program
	collector *caller
}

// measureMemory takes each side to a full fleet on servers of its own, both at the same time, and compares by how much
// the servers' memory grew. kube-apiserver counts on both sides, ichor-apiserver on ours and the webhook on the rival's.
func measureMemory(ctx context.Context, s settings) ([]report.Row, error) {
	sides := []*side{newOurs(), newRival(false)}
	grown := make([]map[string]float64, len(sides))
	group, inner := errgroup.WithContext(ctx)
	for i, side := range sides {
		group.Go(func() (err error) {
			grown[i], err = growth(inner, s, side)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	ours, rival := grown[0], grown[1]
	rows := []report.Row{report.Compare(fmt.Sprintf("memory_%d", s.machines), sum(ours), sum(rival), "MiB", 1.0/3)}
	rows = append(rows, report.Compare("  kube-apiserver", ours["kube-apiserver"], rival["kube-apiserver"], "MiB", 0))
	return append(rows, report.Compare("  ichor-apiserver; peer: the webhook", ours["ichor-apiserver"], rival["webhook"], "MiB", 0)), nil
}

func sum(parts map[string]float64) float64 {
	total := 0.0
	for _, part := range parts {
		total += part
	}
	return total
}

// growth is by how much the memory of each server of a side grows from an empty fleet to a full one, in MiB. A watch is
// open all the time, as an informer's would be.
func growth(ctx context.Context, s settings, side *side) (map[string]float64, error) {
	say("memory of %s: starting", side.name)
	w, err := startWorld(ctx, s, "memory-"+side.name, side)
	if err != nil {
		return nil, err
	}
	defer w.stop(ctx)
	servers, err := w.measured()
	if err != nil {
		return nil, err
	}
	people, err := w.callers(w.operator, 1)
	if err != nil {
		return nil, err
	}
	if _, err := people[0].call(ctx, http.MethodGet, side.machines(), nil); err != nil {
		return nil, err
	}
	before, err := settled(ctx, servers, s.idle)
	if err != nil {
		return nil, err
	}
	say("memory of %s: entering %d machines", side.name, s.machines)
	if _, err := load(ctx, w, s.machines); err != nil {
		return nil, err
	}
	// Every cache is warm: a list from the watch cache, as an informer begins with.
	if _, err := people[0].drain(ctx, side.machines()+"?resourceVersion=0"); err != nil {
		return nil, err
	}
	after, err := settled(ctx, servers, s.idle)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for name, was := range before {
		out[name] = after[name] - was
		say("memory of %s: %s %.0f MiB, then %.0f MiB", side.name, name, was, after[name])
	}
	return out, nil
}

// measured are the servers whose memory counts.
func (w *world) measured() ([]measured, error) {
	admin, err := w.callers(w.adminPair, 3)
	if err != nil {
		return nil, err
	}
	out := []measured{{w.kube, admin[0]}}
	for i, p := range []*program{w.ichor, w.webhook} {
		if p != nil {
			admin[i+1].base = p.url
			out = append(out, measured{p, admin[i+1]})
		}
	}
	return out, nil
}

// settled has the servers collect garbage, lets them rest, and reads their memory. They collect once more in the middle:
// what the first collection freed is given back to the kernel after it.
func settled(ctx context.Context, servers []measured, idle time.Duration) (map[string]float64, error) {
	for range 2 {
		for _, server := range servers {
			if _, err := server.collector.drain(ctx, "/debug/pprof/heap?gc=1"); err != nil {
				return nil, fmt.Errorf("collect garbage in %s: %w", server.name, err)
			}
		}
		timer := time.NewTimer(idle / 2)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
	}
	out := map[string]float64{}
	for _, server := range servers {
		resident, err := server.residentMemory()
		if err != nil {
			return nil, err
		}
		out[server.name] = resident
	}
	return out, nil
}
