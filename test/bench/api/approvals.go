// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// restorers is how many objects are put back at a time.
const restorers = 16

// approvals are what is approved again and again: machines as they were when they waited, and the cluster.
type approvals struct {
	world   *world
	clients []*caller
	waiting map[*side][]record
	cluster map[*side]record
}

// newApprovals remembers the machines of numbers below the first watched one, none of which is approved yet.
func newApprovals(ctx context.Context, w *world, clients []*caller) (*approvals, error) {
	a := &approvals{world: w, clients: clients, waiting: map[*side][]record{}, cluster: map[*side]record{}}
	for _, s := range w.sides {
		for n := range firstWatched {
			r, err := w.get(ctx, s.machineKey(n))
			if err != nil {
				return nil, err
			}
			a.waiting[s] = append(a.waiting[s], r)
		}
		r, err := w.get(ctx, s.clusterKey())
		if err != nil {
			return nil, err
		}
		a.cluster[s] = r
	}
	return a, nil
}

// prepare puts the machines and the cluster back, the cluster with a count, and returns the bodies that approve them.
func (a *approvals) prepare(ctx context.Context, s *side, first, n int, role v1alpha1.MachineRole, count int32) ([][]byte, error) {
	if err := a.putCluster(ctx, s, count); err != nil {
		return nil, err
	}
	bodies := make([][]byte, n)
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(restorers)
	for i := range n {
		group.Go(func() error {
			r := &a.waiting[s][first+i]
			if err := a.world.put(inner, r); err != nil {
				return err
			}
			machine, err := r.machine()
			if err != nil {
				return err
			}
			approve(machine, role)
			bodies[i], err = json.Marshal(machine)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return bodies, a.settle(ctx, s, first, n)
}

// putCluster puts the cluster back without slots. Ichor's API takes no more than nine control planes; more clients than
// that find a higher count in etcd, on both sides.
func (a *approvals) putCluster(ctx context.Context, s *side, count int32) error {
	r := a.cluster[s]
	var object map[string]any
	if err := json.Unmarshal(r.value, &object); err != nil {
		return fmt.Errorf("read cluster of %s: %w", s.name, err)
	}
	object["spec"].(map[string]any)["controlPlane"].(map[string]any)["count"] = count
	value, err := json.Marshal(object)
	if err != nil {
		return err
	}
	r.value = value
	return a.world.put(ctx, &r)
}

// settle waits until the servers have seen what was put back.
func (a *approvals) settle(ctx context.Context, s *side, first, n int) error {
	newest := int64(0)
	for _, r := range a.waiting[s][first : first+n] {
		newest = max(newest, r.version)
	}
	_, err := a.clients[0].call(ctx, http.MethodGet, s.machines()+"/"+nameOf(first)+"?resourceVersion="+strconv.FormatInt(newest, 10), nil)
	return err
}

// round approves n machines with so many clients. Refusals are counted; anything else but a success is an error.
func (a *approvals) round(ctx context.Context, s *side, clients, first, n int, role v1alpha1.MachineRole, count int32) (t timing, refused int64, err error) {
	bodies, err := a.prepare(ctx, s, first, n, role, count)
	if err != nil {
		return timing{}, 0, err
	}
	var refusals atomic.Int64
	t, err = together(ctx, a.clients[:clients], n, func(ctx context.Context, client *caller, i int) error {
		_, err := client.call(ctx, http.MethodPut, s.machines()+"/"+nameOf(first+i)+s.approval, bodies[i])
		if full := (*refusal)(nil); errors.As(err, &full) && full.code == http.StatusForbidden {
			refusals.Add(1)
			return nil
		}
		return err
	})
	if err != nil {
		return timing{}, 0, fmt.Errorf("approve machines of %s: %w", s.name, err)
	}
	return t, refusals.Load(), nil
}

// speed approves in turns and expects that nothing is refused.
func (a *approvals) speed(ctx context.Context, clients, rounds, n int, role v1alpha1.MachineRole, count int32) (map[*side]*timing, error) {
	return inTurns(ctx, a.world.sides, rounds, func(ctx context.Context, s *side, _ int) (timing, error) {
		t, refused, err := a.round(ctx, s, clients, firstCandidate, n, role, count)
		if err == nil && refused > 0 {
			err = fmt.Errorf("approve %d machines of %s: %d were refused", n, s.name, refused)
		}
		return t, err
	})
}

// over approves more than there may be, all at once, and returns how many are approved over the limit, by what etcd
// holds afterwards.
func (a *approvals) over(ctx context.Context, s *side, rounds, first int, count int32) (over int, err error) {
	for range rounds {
		if _, _, err := a.round(ctx, s, racers, first, racers, v1alpha1.RoleControlPlane, count); err != nil {
			return 0, err
		}
		approved := 0
		for n := first; n < first+racers; n++ {
			r, err := a.world.get(ctx, s.machineKey(n))
			if err != nil {
				return 0, err
			}
			machine, err := r.machine()
			if err != nil {
				return 0, err
			}
			if machine.Spec.ApprovalState == v1alpha1.ApprovalApproved {
				approved++
			}
		}
		if approved == 0 {
			return 0, fmt.Errorf("approve machines of %s: none is approved", s.name)
		}
		over += max(0, approved-int(count)-1)
	}
	// They are put back: what is approved would count in the next measurement.
	_, err = a.prepare(ctx, s, first, racers, v1alpha1.RoleControlPlane, count)
	return over, err
}
