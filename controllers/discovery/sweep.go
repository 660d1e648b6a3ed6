// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// maxMet is how many machines may wait to be read. While more are met, the sweep waits.
const maxMet = 4096

// met is a Talos machine that the sweep met, at the i-th address.
type met struct {
	i     int
	probe talos.Probe
}

// run looks at the addresses that results want and calls progress now and then. The sweep goes ahead, many addresses at a
// time; the machines that it meets are read behind it, a few at a time, so that they show up while it lasts and slow ones
// don't hold it up. The first error that isn't a peer's ends both.
func (c *Controller) run(ctx context.Context, cluster *v1alpha1.TalosCluster, r *results, progress func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	machines := make(chan met, min(maxMet, r.left()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		var readers sync.WaitGroup
		for range min(c.Options.Reads, r.left()) {
			readers.Go(func() {
				if err := c.readMet(ctx, cluster, r, machines); err != nil {
					cancel(err)
				}
			})
		}
		c.sweep(ctx, r, machines)
		close(machines)
		readers.Wait()
	}()
	ticker := c.Clock.NewTicker(c.Options.ProgressInterval)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return context.Cause(ctx)
		case <-ticker.C():
			if err := progress(); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		}
	}
}

// sweep classifies the addresses. Machines are passed on; all else is a finding already.
func (c *Controller) sweep(ctx context.Context, r *results, machines chan<- met) {
	var workers sync.WaitGroup
	var next atomic.Int64
	next.Store(int64(r.first))
	for range min(c.Options.Concurrency, r.left()) {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(r.plan.addresses) {
					return
				}
				probe, err := c.probe(ctx, r.plan.addresses[i])
				if err != nil {
					return
				}
				switch probe.Class {
				case v1alpha1.HostMaintenance, v1alpha1.HostAlreadyConfigured:
					select {
					case machines <- met{i, probe}:
					case <-ctx.Done():
						return
					}
				default:
					r.add(i, r.notMachine(probe))
				}
				// Where answers are there at once, nobody else would come to run for long, and deadlines pass meanwhile.
				runtime.Gosched()
			}
		})
	}
	workers.Wait()
}

// probe classifies an address when it is its turn. Its error is that ctx ended: what a probe says that was cut off means
// nothing.
func (c *Controller) probe(ctx context.Context, address netip.Addr) (talos.Probe, error) {
	attempt, err := c.pacer.wait(ctx)
	if err != nil {
		return talos.Probe{}, err
	}
	probe := c.Prober.Probe(ctx, address)
	attempt.ended()
	return probe, ctx.Err()
}

// readMet reads machines until there are no more. Its error is the Kubernetes API's.
func (c *Controller) readMet(ctx context.Context, cluster *v1alpha1.TalosCluster, r *results, machines <-chan met) error {
	for m := range machines {
		found, err := c.inspect(ctx, cluster, m.probe)
		if ctx.Err() != nil {
			return nil // what was found by then means nothing
		}
		if err != nil {
			return err
		}
		r.add(m.i, found)
	}
	return nil
}
