// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/crypto/x509"

	"maesh.dev/ichor/test/hollow/disk"
	"maesh.dev/ichor/test/hollow/facts"
)

// refresh computes all resources anew and writes what differs. It is called after every change and never from within.
func (b *boot) refresh() {
	b.refreshing.Lock()
	defer b.refreshing.Unlock()
	v := b.view()
	for _, g := range facts.Compute(v) {
		if err := b.store.Sync(b.ctx, g.Owner, g.Kind, g.Resources); err != nil {
			b.storeError(err)
		}
	}
	b.updateStatus(b.ctx, v)
	b.node.notify()
	b.api.kick()
}

// storeError tells of a failed write; at the end of a boot they all fail, and nobody looks any more.
func (b *boot) storeError(err error) {
	if b.ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		b.log.Error("write a resource", "error", err)
	}
}

func (b *boot) view() facts.View {
	m := b.node.machine()
	installed, err := b.installed()
	if err != nil {
		b.log.Error("look at the system disk", "error", err)
	}
	if b.node.faults.isOversize() {
		m.ProductName = strings.Repeat("x", oversized)
	}
	address, also := b.address(), b.node.faults.alsoAt()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, each := range append([]netip.Prefix{address}, also...) {
		if each.IsValid() && !slices.Contains(b.seen, each) {
			b.seen = append(b.seen, each)
		}
	}
	maintenance := b.active == nil || !b.active.CompleteForBoot()
	v := facts.View{
		Machine: m, Address: address, Also: also, Seen: slices.Clone(b.seen), Hostname: b.hostname, Domainname: b.domainname,
		Version: b.slot.Version, Profile: b.profile, BootID: b.id, Schematic: b.slot.Schematic, Maintenance: maintenance, APIOpen: b.apiOpen,
		Active: b.active, Persistent: b.persistent, Installed: installed, Meta: b.meta, NodeID: b.nodeID,
		Services: b.visibleServices(), Workload: b.workload, Booted: b.booted,
		MaintenanceCA: &x509.PEMEncodedCertificateAndKey{Crt: b.authority.CertificatePEM()},
	}
	if !maintenance && b.active.Cluster() != nil {
		v.ControlPlanes = b.node.options.Discovery.controlPlanes(b.active.Cluster().ID())
		v.Peers = b.node.options.Discovery.peers(b.active.Cluster().ID())
	}
	return v
}

// installed is the installation on the machine's system disk, nil if there is none.
func (b *boot) installed() (*disk.Installation, error) { return b.node.systemDisk(b.node.machine()) }

// address is the node's: the one its configuration sets, else that of its fleet entry (as from DHCP).
func (b *boot) address() netip.Prefix {
	b.mu.Lock()
	active := b.active
	b.mu.Unlock()
	if a := staticAddress(active); a.IsValid() {
		return a
	}
	m := b.node.machine()
	return m.Address.Prefix
}
