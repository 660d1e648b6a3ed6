// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"

	"maesh.dev/ichor/pkg/talos"
)

// slowDialer connects to machines only once it is opened.
type slowDialer struct {
	talos.Dialer
	open    chan struct{}
	waiting atomic.Int64
	most    atomic.Int64
}

func (d *slowDialer) DialMaintenance(ctx context.Context, address netip.Addr, pin talos.Fingerprint) (talos.MaintenanceNode, error) {
	d.most.Store(max(d.most.Load(), d.waiting.Add(1)))
	defer d.waiting.Add(-1)
	select {
	case <-d.open:
		return d.Dialer.DialMaintenance(ctx, address, pin)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// newSlowWorld has more slow machines than are read or looked at at a time.
func newSlowWorld(t *testing.T, machines int) (*world, *slowDialer) {
	dialer := &slowDialer{open: make(chan struct{})}
	w := newWorld(t, func(c *Config) {
		c.Options.Concurrency, c.Options.Reads = 4, 2
		dialer.Dialer = c.Dialer
		c.Dialer = dialer
	})
	for i := range machines {
		w.put(fmt.Sprintf("10.0.0.%d", i+1), board(fmt.Sprintf("c0ffee00-0000-4000-8000-%012d", i), fmt.Sprintf("S%d", i), fmt.Sprintf("02:00:5e:00:54:%02x", i)))
	}
	w.settle()
	return w, dialer
}

// everyAddressIsLookedAt waits for the probe of every address of the plan.
func (w *world) everyAddressIsLookedAt() {
	w.Helper()
	w.eventually("every address is looked at", func() bool {
		for last := 1; last < 255; last++ {
			if w.probes(fmt.Sprintf("10.0.0.%d", last)) == 0 {
				return false
			}
		}
		return w.probes("10.0.9.7") > 0
	})
}

func TestSlowMachinesDontHoldUpTheSweep(t *testing.T) {
	w, dialer := newSlowWorld(t, 20)
	ended := make(chan error, 1)
	go func() {
		_, err := w.c.reconcileCluster(t.Context(), "prod")
		ended <- err
	}()
	w.everyAddressIsLookedAt()
	close(dialer.open)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if status := w.cluster().Status.Discovery; status.Maintenance != 20 || status.Done != 255 || len(w.machines()) != 20 {
		t.Errorf("%d machines, discovery %+v", len(w.machines()), status)
	}
	if most := dialer.most.Load(); most > 2 {
		t.Errorf("%d machines were read at a time", most)
	}
}

func TestAScanThatIsStoppedLeavesMachinesUnread(t *testing.T) {
	w, _ := newSlowWorld(t, 20)
	ctx, kill := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := w.c.reconcileCluster(ctx, "prod")
		ended <- err
	}()
	w.everyAddressIsLookedAt()
	kill()
	if err := <-ended; err == nil {
		t.Error("a scan that was stopped ended well")
	}
	if names := w.names(); len(names) != 0 {
		t.Errorf("machines %v", names)
	}
}
