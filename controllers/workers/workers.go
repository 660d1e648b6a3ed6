// SPDX-License-Identifier: Apache-2.0

// Package workers is what the controllers have in common: goroutines that take names from a queue, reconcile what they
// name, and look again when that asks for it.
package workers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// afterConflict is how long the event of a newer object may take to arrive: a copy that was too old is looked at again then.
const afterConflict = time.Second

// Pool is the work of one controller.
type Pool struct {
	// Name says in logs and errors what is worked on: machine.
	Name string
	// Queue has the names; it is shut down when the work ends.
	Queue workqueue.TypedRateLimitingInterface[string]
	// Synced are the caches that have to be filled before the work begins.
	Synced []cache.InformerSynced
	// Reconcile works on one name, and says when to do so again by itself: 0 is not at all.
	Reconcile func(ctx context.Context, name string) (after time.Duration, err error)
}

// Run works until ctx ends, and returns when every worker has stopped: what one is doing is finished first.
func (p Pool) Run(ctx context.Context, workers int) error {
	defer p.Queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), p.Synced...) {
		return fmt.Errorf("fill the caches of the %s controller: %w", p.Name, context.Cause(ctx))
	}
	var running sync.WaitGroup
	for range max(workers, 1) {
		running.Go(func() {
			for p.next(ctx) { //nolint:revive // the work is in the condition
			}
		})
	}
	<-ctx.Done()
	p.Queue.ShutDown()
	running.Wait()
	return nil
}

// next works on one name, and tells whether there may be more.
func (p Pool) next(ctx context.Context) bool {
	name, quit := p.Queue.Get()
	if quit {
		return false
	}
	defer p.Queue.Done(name)
	if ctx.Err() != nil {
		return true // what is left in the queue is not begun
	}
	after, err := p.Reconcile(ctx, name)
	switch {
	case err == nil:
		p.Queue.Forget(name)
		if after > 0 {
			p.Queue.AddAfter(name, after)
		}
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		// Our copy was old; the event of the newer one is on its way, or here already.
		p.Queue.Forget(name)
		p.Queue.AddAfter(name, afterConflict)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
	default:
		klog.FromContext(ctx).Error(err, p.Name+": trying again", "name", name)
		p.Queue.AddRateLimited(name)
	}
	return true
}
