// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/bench/report"
)

// How often what is measured in turns is repeated, for -rounds=1.
const (
	getRounds    = 6
	listRounds   = 5
	watchRounds  = 3
	workerRounds = 4
	overRounds   = 5
)

// ofClients are the numbers of clients that approvals are measured with: how many control planes and how many workers a
// round approves, how many rounds of control planes there are, and the cluster's count. With fifty clients each approves one: the count, of 49, is more than
// Ichor's API takes and is put into etcd.
var ofClients = []struct {
	clients, controlPlanes, workers, rounds int
	count                                   int32
}{{1, 10, 50, 10, count}, {10, 10, 150, 15, count}, {50, 50, 200, 8, 49}}

// figures are what was measured of both sides.
type figures struct {
	ours, rival *side
	rows        []report.Row
}

// fewer compares what is better when it is less.
func (f *figures) fewer(name string, ours, rival float64, unit string, atMost float64) {
	f.add(report.Compare(name, ours, rival, unit, atMost))
}

// more compares what is better when it is more.
func (f *figures) more(name string, ours, rival float64, unit string, atLeast float64) {
	row := report.Compare(name, ours, rival, unit, 0)
	row.AtLeast = atLeast
	f.add(row)
}

func (f *figures) add(row report.Row) {
	say("  %s: %.4g, rival %.4g %s (%.2f)", row.Name, row.Ours, row.Peer, row.Unit, row.Ratio)
	f.rows = append(f.rows, row)
}

func (f *figures) rate(name string, measured map[*side]*timing, atLeast float64) {
	f.more(name, measured[f.ours].rate(), measured[f.rival].rate(), "1/s", atLeast)
}

func (f *figures) quantile(name string, measured map[*side]*timing, share, atMost float64) {
	f.fewer(name, measured[f.ours].at(share), measured[f.rival].at(share), "ms", atMost)
}

// measureSpeed measures everything but memory, both sides on one kube-apiserver.
func measureSpeed(ctx context.Context, s settings) ([]report.Row, error) {
	f := &figures{ours: newOurs(), rival: newRival(true)}
	say("starting etcd, kube-apiserver, ichor-apiserver and the rival's webhook")
	w, err := startWorld(ctx, s, "speed", f.ours, f.rival)
	if err != nil {
		return nil, err
	}
	defer w.stop(ctx)
	b := &speed{settings: s, world: w, figures: f}
	if b.people, err = w.callers(w.operator, racers); err != nil {
		return nil, err
	}
	if b.controllers, err = w.callers(w.machine, loaders); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"load", b.load}, {"reads", b.reads}, {"watch", b.watch}, {"approvals", b.approvals}, {"limit", b.limit},
	} {
		if err := w.profiled(ctx, s.profiles, part.name, func() error { return part.run(ctx) }); err != nil {
			return nil, err
		}
	}
	return f.rows, nil
}

// speed measures one part after the other.
type speed struct {
	settings
	*figures
	world               *world
	people, controllers []*caller
	again               *approvals
}

func (b *speed) load(ctx context.Context) error {
	say("entering %d machines on each side", b.machines)
	took, err := load(ctx, b.world, b.machines)
	if err != nil {
		return err
	}
	ours, rival := took[b.ours], took[b.rival]
	b.more("create", ours.create.rate(), rival.create.rate(), "1/s", 0)
	b.more("status_update", ours.status.rate(), rival.status.rate(), "1/s", 0)
	var stored [2]float64
	for i, s := range []*side{b.ours, b.rival} {
		total, count, err := b.world.bytesStored(ctx, s)
		if err != nil {
			return err
		}
		if count != b.machines {
			return fmt.Errorf("machines of %s in etcd: %d, want %d", s.name, count, b.machines)
		}
		stored[i] = float64(total) / (1 << 20)
	}
	b.fewer(b.sized("bytes_stored"), stored[0], stored[1], "MiB", 0)
	return nil
}

// sized is the name of what is measured of all machines.
func (b *speed) sized(name string) string { return fmt.Sprintf("%s_%d", name, b.machines) }

func (b *speed) reads(ctx context.Context) error {
	say("reading machines one by one")
	got, err := inTurns(ctx, b.world.sides, getRounds*b.rounds, func(ctx context.Context, s *side, round int) (timing, error) {
		return getSome(ctx, b.people, s, b.machines, round)
	})
	if err != nil {
		return err
	}
	b.rate("get", got, 0)
	say("listing machines")
	listed, err := inTurns(ctx, b.world.sides, listRounds*b.rounds, func(ctx context.Context, s *side, _ int) (timing, error) {
		return listAll(ctx, b.people[0], s)
	})
	if err != nil {
		return err
	}
	b.quantile(b.sized("list"), listed, 0.5, 0.5)
	paged, err := inTurns(ctx, b.world.sides, listRounds*b.rounds, func(ctx context.Context, s *side, _ int) (timing, error) {
		return listPages(ctx, b.people[0], s, b.machines)
	})
	if err != nil {
		return err
	}
	b.quantile(b.sized("list")+"_paginated", paged, 0.5, 0.5)
	return nil
}

func (b *speed) watch(ctx context.Context) error {
	say("watching with %d watchers", watchers)
	heard, err := inTurns(ctx, b.world.sides, watchRounds*b.rounds, func(ctx context.Context, s *side, _ int) (timing, error) {
		return fanOut(ctx, b.world, b.controllers, b.people[:watchClients], s)
	})
	if err != nil {
		return err
	}
	b.rate(fmt.Sprintf("watch_fanout_%d", watchers), heard, 0)
	return nil
}

func (b *speed) approvals(ctx context.Context) (err error) {
	if b.again, err = newApprovals(ctx, b.world, b.people); err != nil {
		return err
	}
	for _, of := range ofClients {
		say("approving control planes with %d clients", of.clients)
		took, err := b.again.speed(ctx, of.clients, of.rounds*b.rounds, of.controlPlanes, v1alpha1.RoleControlPlane, of.count)
		if err != nil {
			return err
		}
		b.rate(fmt.Sprintf("approvals_controlplane_per_second_%d", of.clients), took, 1.5)
		b.quantile(fmt.Sprintf("approval_controlplane_p50_%d", of.clients), took, 0.5, 0)
		b.quantile(fmt.Sprintf("approval_controlplane_p99_%d", of.clients), took, 0.99, 1)
	}
	for _, of := range ofClients {
		say("approving workers with %d clients", of.clients)
		took, err := b.again.speed(ctx, of.clients, workerRounds*b.rounds, of.workers, v1alpha1.RoleWorker, count)
		if err != nil {
			return err
		}
		b.rate(fmt.Sprintf("approvals_worker_per_second_%d", of.clients), took, 1)
		b.quantile(fmt.Sprintf("approval_worker_p50_%d", of.clients), took, 0.5, 0)
		b.quantile(fmt.Sprintf("approval_worker_p99_%d", of.clients), took, 0.99, 1)
	}
	return nil
}

// limit lets fifty clients approve fifty control planes where four may be. The rows hold how many were approved over
// the limit: Ichor's beside the right rival's, and beside those that count.
func (b *speed) limit(ctx context.Context) error {
	const count = 3
	say("approving more control planes than there may be")
	ours, err := b.again.over(ctx, b.ours, overRounds*b.rounds, firstCandidate, count)
	if err != nil {
		return err
	}
	for _, rival := range []struct {
		name  string
		first int
	}{{"approvals_over_limit", firstCandidate}, {"approvals_over_limit_racy_webhook", 0}, {"approvals_over_limit_racy_webhook_live_list", racers}} {
		over, err := b.again.over(ctx, b.rival, overRounds*b.rounds, rival.first, count)
		if err != nil {
			return err
		}
		b.fewer(rival.name, float64(ours), float64(over), "1", 0)
		if rival.first == firstCandidate && over > 0 {
			return fmt.Errorf("the rival that should be right approved %d control planes over the limit", over)
		}
	}
	if ours > 0 {
		return fmt.Errorf("%d control planes were approved over the limit", ours)
	}
	return nil
}
