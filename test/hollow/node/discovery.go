// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"maesh.dev/ichor/test/hollow/facts"
)

// affiliateLife is how long discovery remembers a machine that is silent. Source: Talos, defaultDiscoveryTTL.
const affiliateLife = 30 * time.Minute

// Discovery stands for Talos' discovery service: control planes tell it where they are, by cluster id. Workers ask it
// where trustd may be, and control planes list each other. Workers aren't told of: every machine would list every
// other. The zero value is ready for use.
type Discovery struct {
	mu       sync.Mutex
	clusters map[string]map[string]affiliate
	watchers map[int]func()
	next     int
}

// affiliate is a control plane as discovery knows it.
type affiliate struct {
	peer facts.Peer
	// left is when it went silent; zero while it runs.
	left time.Time
}

func (d *Discovery) publish(clusterID, node string, peer facts.Peer) {
	if d == nil || clusterID == "" {
		return
	}
	d.change(func() bool {
		if d.clusters == nil {
			d.clusters = map[string]map[string]affiliate{}
		}
		if d.clusters[clusterID] == nil {
			d.clusters[clusterID] = map[string]affiliate{}
		}
		if d.clusters[clusterID][node] == (affiliate{peer: peer}) {
			return false
		}
		d.clusters[clusterID][node] = affiliate{peer: peer}
		return true
	})
}

// fallSilent is the end of a machine's boot; it stays known for affiliateLife.
func (d *Discovery) fallSilent(node string) {
	if d == nil {
		return
	}
	d.change(func() bool {
		changed := false
		for _, members := range d.clusters {
			if known, there := members[node]; there && known.left.IsZero() {
				known.left = time.Now()
				members[node] = known
				changed = true
			}
		}
		return changed
	})
}

// change does a change under the lock and then wakes the watchers, without the lock.
func (d *Discovery) change(do func() bool) {
	d.mu.Lock()
	var wake []func()
	if do() {
		for _, f := range d.watchers {
			wake = append(wake, f)
		}
	}
	d.mu.Unlock()
	for _, f := range wake {
		f()
	}
}

// controlPlanes are where control planes run now.
func (d *Discovery) controlPlanes(clusterID string) []netip.Addr {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []netip.Addr
	for _, known := range d.clusters[clusterID] {
		if known.left.IsZero() {
			list = append(list, known.peer.Address)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

// peers are the control planes that are known, those included that went silent a while ago.
func (d *Discovery) peers(clusterID string) []facts.Peer {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []facts.Peer
	for _, known := range d.clusters[clusterID] {
		if known.left.IsZero() || time.Since(known.left) < affiliateLife {
			list = append(list, known.peer)
		}
	}
	slices.SortFunc(list, func(a, b facts.Peer) int { return a.Address.Compare(b.Address) })
	return list
}

// watch calls f after each change until stop is called; f must return at once.
func (d *Discovery) watch(f func()) (stop func()) {
	if d == nil {
		return func() {}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watchers == nil {
		d.watchers = map[int]func(){}
	}
	id := d.next
	d.next++
	d.watchers[id] = f
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.watchers, id)
	}
}
