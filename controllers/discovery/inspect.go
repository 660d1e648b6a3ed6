// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"

	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// inspect reads the machine that a probe met, and keeps its object current. Its error is the Kubernetes API's, and ends the
// scan; what is wrong with a peer is a finding.
func (c *Controller) inspect(ctx context.Context, cluster *v1alpha1.TalosCluster, probe talos.Probe) (finding, error) {
	if probe.Class == v1alpha1.HostMaintenance {
		return c.inspectMaintenance(ctx, cluster, probe.Address)
	}
	return c.inspectConfigured(ctx, cluster, probe)
}

func (c *Controller) inspectMaintenance(ctx context.Context, cluster *v1alpha1.TalosCluster, address netip.Addr) (finding, error) {
	unread := func(why string) finding {
		return finding{class: v1alpha1.HostMaintenance, odd: why, unread: true}
	}
	seen, err := c.readMaintenance(ctx, address)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("discovery: a machine in maintenance mode can't be read", "address", address, "err", err)
		return unread("a Talos machine in maintenance mode that " + unreadWords(err)), nil
	}
	if !c.patience.enough(seen, c.Clock.Now()) {
		return unread("a Talos machine in maintenance mode that has not read its hardware yet"), nil
	}
	name, err := c.place(ctx, cluster, seen)
	var refused *refusedError
	if errors.As(err, &refused) {
		return unread(refused.Error()), nil
	}
	var claim *claimError
	if errors.As(err, &claim) {
		return finding{class: v1alpha1.HostMaintenance, odd: claim.Error()}, nil
	}
	return finding{class: v1alpha1.HostMaintenance, machine: name}, err
}

// unreadWords says why a machine couldn't be read, in the same words for the same cause, so that a status doesn't change
// with port numbers.
func unreadWords(err error) string {
	switch {
	case talos.Code(err) == codes.DeadlineExceeded:
		return "doesn't answer in time"
	case talos.IsLost(err):
		return "breaks the connection"
	default:
		return "answers what can't be understood"
	}
}

// readMaintenance reads a machine's facts. Nothing is pinned: the certificate that comes with them is recorded, for a
// person to compare.
func (c *Controller) readMaintenance(ctx context.Context, address netip.Addr) (sighting, error) {
	release, err := c.awaitRead(ctx)
	if err != nil {
		return sighting{}, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, c.Options.ReadTimeout)
	defer cancel()
	node, err := c.Dialer.DialMaintenance(ctx, address, "")
	if err != nil {
		return sighting{}, err
	}
	defer node.Close()
	facts, err := node.Facts(ctx)
	return sighting{address: address, fingerprint: node.Fingerprint(), facts: facts}, err
}

// inspectConfigured tells this cluster's machines from others by the cluster's own certificate authority.
func (c *Controller) inspectConfigured(ctx context.Context, cluster *v1alpha1.TalosCluster, probe talos.Probe) (finding, error) {
	machines, err := c.store.all()
	if err != nil {
		return finding{}, err
	}
	found := finding{class: v1alpha1.HostAlreadyConfigured, odd: probe.Message}
	if owner := approvedAt(machines, probe.Address.String()); owner != nil {
		found.odd = "" // whatever answers there, the machine controller says so on the machine
		if owner.Status.Addresses[0] == probe.Address.String() && meta.IsStatusConditionTrue(owner.Status.Conditions, v1alpha1.ConditionReachable) {
			found.machine = owner.Name
			return found, nil
		}
	}
	facts, err := c.readConfigured(ctx, cluster, probe.Address)
	if err != nil {
		return found, nil //nolint:nilerr // it doesn't let this cluster in, so it isn't known to be of it
	}
	m := match(machines, identity.Identity(facts.Identity), probe.Address.String())
	if m == nil {
		if q := c.quarantined(cluster, identity.Identity(facts.Identity)); q != nil {
			return finding{class: v1alpha1.HostQuarantined, odd: fmt.Sprintf("machine %s, which was removed without being wiped (%s, by %s); nothing is written to it", q.Name, q.At.UTC().Format(time.RFC3339), q.By)}, nil
		}
		return finding{class: v1alpha1.HostOursUnknown, odd: fmt.Sprintf("a configured machine of this cluster that no TalosMachine describes (%s)", describe(identity.Identity(facts.Identity)))}, nil
	}
	found = finding{class: v1alpha1.HostAlreadyConfigured, machine: m.Name}
	// The machine controller keeps the addresses of a machine that it reaches; this is for one that moved.
	known := dialled(m)
	if known != "" {
		if slices.Contains(facts.Addresses, known) {
			return found, nil
		}
		if there, err := c.isAt(ctx, cluster, m); there || err != nil {
			return found, err
		}
	}
	_, err = c.store.update(ctx, m, func(m *v1alpha1.TalosMachine) {
		if dialled(m) == known {
			m.Status.Addresses = inOrder(facts.Addresses)
		}
	})
	return found, err
}

// quarantined is the record of a machine that was removed without being wiped; nil if this isn't one.
func (c *Controller) quarantined(cluster *v1alpha1.TalosCluster, who identity.Identity) *v1alpha1.QuarantinedMachine {
	if newest, err := c.clusters.Get(cluster.Name); err == nil && newest.UID == cluster.UID {
		cluster = newest // it may have been removed since the scan began
	}
	for i := range cluster.Status.Quarantined {
		if q := &cluster.Status.Quarantined[i]; identity.SameMachine(identity.Identity(q.Identity), who) {
			return q
		}
	}
	return nil
}

func (c *Controller) readConfigured(ctx context.Context, cluster *v1alpha1.TalosCluster, address netip.Addr) (*talos.Facts, error) {
	release, err := c.awaitRead(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, c.Options.ReadTimeout)
	defer cancel()
	credentials, err := c.Credentials.CredentialsFor(ctx, cluster.Name)
	if err != nil {
		return nil, err
	}
	node, err := c.Dialer.DialConfigured(ctx, address, credentials)
	if err != nil {
		return nil, err
	}
	defer node.Close()
	return node.Facts(ctx)
}

// awaitRead waits for one of the few places for reading a machine, which takes more memory than a probe.
func (c *Controller) awaitRead(ctx context.Context) (release func(), err error) {
	select {
	case c.reads <- struct{}{}:
		return func() { <-c.reads }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// approvedAt finds the approved machine that an address belongs to.
func approvedAt(machines []*v1alpha1.TalosMachine, address string) *v1alpha1.TalosMachine {
	for _, m := range machines {
		if m.Spec.ApprovalState == v1alpha1.ApprovalApproved && slices.Contains(m.Status.Addresses, address) {
			return m
		}
	}
	return nil
}

// firmwarePatience is how long a machine is waited for that doesn't say who it is. Talos publishes the SMBIOS tables soon
// after boot; a board without any never will, and is entered without.
const firmwarePatience = 2 * time.Minute

// maxPatience bounds the machines that are waited for at a time.
const maxPatience = 4096

// patience remembers since when machines were met that had not read their firmware. Forgetting it costs another wait.
type patience struct {
	mu    sync.Mutex
	since map[netip.Addr]unreadSince
}

type unreadSince struct {
	fingerprint talos.Fingerprint
	since       time.Time
}

// enough tells whether a machine has said all that it will.
func (p *patience) enough(seen sighting, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seen.facts.FirmwareRead {
		delete(p.since, seen.address)
		return true
	}
	earlier, met := p.since[seen.address]
	if !met || earlier.fingerprint != seen.fingerprint {
		if len(p.since) >= maxPatience || p.since == nil {
			p.since = map[netip.Addr]unreadSince{}
		}
		p.since[seen.address] = unreadSince{seen.fingerprint, now}
		return false
	}
	return now.Sub(earlier.since) >= firmwarePatience && seen.facts.Inventory != nil
}
