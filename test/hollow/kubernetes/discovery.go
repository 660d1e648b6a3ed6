// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// affiliateLife is how long discovery remembers a node that is silent (Talos: defaultDiscoveryTTL).
const affiliateLife = 30 * time.Minute

// Discovery lets the control planes of a cluster find each other, as Talos' discovery service does. It belongs to a
// process; every factory whose nodes must find each other shares one.
type Discovery struct {
	now func() time.Time

	mu       sync.Mutex
	clusters map[string]map[string]affiliate
}

// affiliate is one control plane of a cluster.
type affiliate struct {
	address netip.Addr
	// left is when it went silent; zero while it runs.
	left time.Time
}

// NewDiscovery makes an empty discovery service.
func NewDiscovery() *Discovery {
	return &Discovery{now: time.Now, clusters: map[string]map[string]affiliate{}}
}

// Endpoints returns the addresses of a cluster's control planes, those included that went silent a while ago.
func (d *Discovery) Endpoints(clusterID string) []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()

	var addresses []netip.Addr

	for machine, a := range d.clusters[clusterID] {
		if !a.left.IsZero() && d.now().Sub(a.left) > affiliateLife {
			delete(d.clusters[clusterID], machine)

			continue
		}

		addresses = append(addresses, a.address)
	}

	slices.SortFunc(addresses, netip.Addr.Compare)

	return slices.Compact(addresses)
}

// announce makes a running control plane known. A machine has one address at a time.
func (d *Discovery) announce(clusterID, machine string, address netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.clusters[clusterID] == nil {
		d.clusters[clusterID] = map[string]affiliate{}
	}

	d.clusters[clusterID][machine] = affiliate{address: address}
}

// fallSilent is the end of a control plane's boot; it stays known for affiliateLife.
func (d *Discovery) fallSilent(clusterID, machine string) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if a, known := d.clusters[clusterID][machine]; known {
		a.left = d.now()
		d.clusters[clusterID][machine] = a
	}
}
