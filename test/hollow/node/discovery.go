// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"slices"
	"sync"
)

// Discovery stands for Talos' discovery service: configured nodes tell it where control planes are, by cluster id, and
// workers ask it where trustd may be. The zero value is ready for use.
type Discovery struct {
	mu       sync.Mutex
	clusters map[string]map[string]netip.Addr
	watchers map[int]func()
	next     int
}

func (d *Discovery) publish(clusterID, node string, address netip.Addr) {
	if d == nil || clusterID == "" {
		return
	}
	d.change(func() bool {
		if d.clusters == nil {
			d.clusters = map[string]map[string]netip.Addr{}
		}
		if d.clusters[clusterID] == nil {
			d.clusters[clusterID] = map[string]netip.Addr{}
		}
		if d.clusters[clusterID][node] == address {
			return false
		}
		d.clusters[clusterID][node] = address
		return true
	})
}

func (d *Discovery) withdraw(node string) {
	if d == nil {
		return
	}
	d.change(func() bool {
		changed := false
		for _, members := range d.clusters {
			if _, there := members[node]; there {
				delete(members, node)
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

func (d *Discovery) controlPlanes(clusterID string) []netip.Addr {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []netip.Addr
	for _, a := range d.clusters[clusterID] {
		list = append(list, a)
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
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
