// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	// minInterval is the shortest time between two scans, whatever a spec says.
	minInterval = 10 * time.Second
	// againAfter is when a machine that told too little is looked at once more.
	againAfter = 15 * time.Second
	// maxAgain bounds the addresses to look at once more.
	maxAgain = 4096
)

// state is what the controller remembers of a cluster. Losing it costs a scan.
type state struct {
	scanned     bool
	at          time.Time
	generation  int64
	scanRequest string
	// again are addresses to look at once more without a scan, and from when.
	again map[netip.Addr]time.Time
	// running is the spec that is being scanned, and stop ends that.
	running v1alpha1.Discovery
	stop    context.CancelCauseFunc
}

// due tells whether a cluster's next scan is due, or else after how long it is.
func (s *state) due(cluster *v1alpha1.TalosCluster, now time.Time) (bool, time.Duration) {
	if !s.scanned || s.generation != cluster.Generation || s.scanRequest != cluster.Spec.Discovery.ScanRequest {
		return true, 0
	}
	left := s.at.Add(max(cluster.Spec.Discovery.Interval.Duration, minInterval)).Sub(now)
	return left <= 0, left
}

// takeAgain takes the addresses out that are to be looked at by now, and says when the next ones are.
func (s *state) takeAgain(now time.Time) (addresses []netip.Addr, next time.Duration) {
	for address, at := range s.again {
		if left := at.Sub(now); left > 0 {
			if next == 0 || left < next {
				next = left
			}
			continue
		}
		addresses = append(addresses, address)
		delete(s.again, address)
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses, next
}

// reconcileCluster scans a cluster's networks if that is due, and says when to look again.
func (c *Controller) reconcileCluster(ctx context.Context, name string) (time.Duration, error) {
	cluster, err := c.clusters.Get(name)
	if apierrors.IsNotFound(err) {
		c.forget(name)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read cluster %s: %w", name, err)
	}
	if cluster.DeletionTimestamp != nil {
		return 0, nil
	}
	due, left := c.isDue(cluster)
	if !due {
		addresses, next := c.takeAgain(name)
		if len(addresses) > 0 {
			return shorter(left, againAfter), c.lookAgain(ctx, cluster, addresses)
		}
		return shorter(left, next), nil
	}
	started := c.Clock.Now()
	scanCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c.starts(cluster, stop)
	r, err := c.scan(scanCtx, cluster)
	if errors.Is(context.Cause(scanCtx), errPlanChanged) {
		c.ends(cluster, nil)
		return time.Millisecond, nil // the queue may not know of the change, if it came before this scan was known
	}
	if err != nil {
		c.ends(cluster, nil)
		return 0, fmt.Errorf("scan for machines of cluster %s: %w", name, err)
	}
	c.ends(cluster, &started)
	c.again(name, againAfter, r.unread()...)
	_, left = c.isDue(cluster)
	if len(r.unread()) > 0 {
		left = shorter(left, againAfter)
	}
	return max(left, time.Millisecond), nil
}

// lookAgain looks at a few addresses besides the scans.
func (c *Controller) lookAgain(ctx context.Context, cluster *v1alpha1.TalosCluster, addresses []netip.Addr) error {
	r := newResults(plan{addresses: addresses}, nil)
	if err := c.run(ctx, cluster, r, func() error { return nil }); err != nil {
		return fmt.Errorf("look again for machines of cluster %s: %w", cluster.Name, err)
	}
	c.again(cluster.Name, againAfter, r.unread()...)
	return nil
}

// shorter is the shorter of two times to wait; 0 is none.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// remembered is the state of a cluster. The lock is held.
func (c *Controller) remembered(name string) *state {
	if c.states[name] == nil {
		c.states[name] = &state{again: map[netip.Addr]time.Time{}}
	}
	return c.states[name]
}

func (c *Controller) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.states, name)
}

func (c *Controller) isDue(cluster *v1alpha1.TalosCluster) (bool, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remembered(cluster.Name).due(cluster, c.Clock.Now())
}

func (c *Controller) takeAgain(name string) ([]netip.Addr, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remembered(name).takeAgain(c.Clock.Now())
}

// again asks for addresses to be looked at once more.
func (c *Controller) again(name string, after time.Duration, addresses ...netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.remembered(name)
	for _, address := range addresses {
		if len(s.again) < maxAgain {
			s.again[address] = c.Clock.Now().Add(after)
		}
	}
}

func (c *Controller) starts(cluster *v1alpha1.TalosCluster, stop context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.remembered(cluster.Name)
	s.running, s.stop = cluster.Spec.Discovery, stop
}

// ends notes the end of a scan; started is nil if it was not finished.
func (c *Controller) ends(cluster *v1alpha1.TalosCluster, started *time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.remembered(cluster.Name)
	s.stop = nil
	if started != nil {
		s.scanned, s.at, s.generation, s.scanRequest = true, *started, cluster.Generation, cluster.Spec.Discovery.ScanRequest
	}
}

// stopOutdated ends a running scan of a cluster whose subnets or addresses changed, or that is gone (nil).
func (c *Controller) stopOutdated(name string, cluster *v1alpha1.TalosCluster) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.states[name]
	if s != nil && s.stop != nil && (cluster == nil || cluster.DeletionTimestamp != nil || !samePlan(s.running, cluster.Spec.Discovery)) {
		s.stop(errPlanChanged)
	}
}

// samePlan tells whether two specs are scanned alike.
func samePlan(a, b v1alpha1.Discovery) bool {
	return slices.Equal(a.Subnets, b.Subnets) && slices.Equal(a.Addresses, b.Addresses)
}
