// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Reasons of events.
const (
	eventDiscovered = "Discovered"
	eventMerged     = "Merged"
)

// refusedError is a machine that can't be entered, which is that machine's trouble alone.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// claimError is a machine that says it is one that is in maintenance mode elsewhere, with another certificate.
type claimError struct{ machine, address string }

func (e *claimError) Error() string {
	return fmt.Sprintf("a Talos machine in maintenance mode that says it is machine %s, which answers at %s with another certificate", e.machine, e.address)
}

// record makes or refreshes the object of a machine that was met in maintenance mode, and returns its name. One at a
// time: who a machine is depends on all others. looked is what is at the address that the machine had; if it is wanted and
// not that, the error is an unlookedError.
func (c *Controller) record(ctx context.Context, cluster *v1alpha1.TalosCluster, seen sighting, looked station) (string, error) {
	c.recording.Lock()
	defer c.recording.Unlock()
	machines, err := c.store.all()
	if err != nil {
		return "", err
	}
	id, address := identity.Identity(seen.facts.Identity), seen.address.String()
	m, isNew := match(machines, id, address), false
	if m == nil {
		if m, isNew, err = c.enter(ctx, cluster, id, address, machines); err != nil {
			return "", err
		}
	}
	if m.DeletionTimestamp != nil {
		return m.Name, nil // it is being let go; once the object is gone, the machine is found again
	}
	where, err := whereIs(m, seen, looked)
	if err != nil {
		return m.Name, err
	}
	if where == claimedHere && !sent(m) {
		return "", &claimError{machine: m.Name, address: looked.address}
	}
	before := m.Status.MaintenanceFingerprint
	written, err := c.store.update(ctx, m, func(m *v1alpha1.TalosMachine) {
		// The object may have changed meanwhile; then the next scan looks again.
		if now, err := whereIs(m, seen, looked); err == nil && now == where {
			observe(m, seen, where, machines, c.Clock.Now())
		}
	})
	if err != nil || written == nil {
		return m.Name, err
	}
	switch {
	case isNew:
		c.Recorder.Eventf(written, corev1.EventTypeNormal, eventDiscovered, "found in maintenance mode at %s", address)
	case before != "" && before != written.Status.MaintenanceFingerprint:
		c.Recorder.Eventf(written, corev1.EventTypeNormal, v1alpha1.ReasonFingerprintChanged,
			"presents maintenance certificate %s at %s, before it was %s; Talos makes a new one at each boot, every 12 hours and when an address changes", seen.fingerprint, address, before)
	}
	return written.Name, nil
}

// enter makes the object of a machine that has none: by its UUID, or by its weak name if the UUID is no good or another
// machine's.
func (c *Controller) enter(ctx context.Context, cluster *v1alpha1.TalosCluster, id identity.Identity, address string, machines []*v1alpha1.TalosMachine) (m *v1alpha1.TalosMachine, isNew bool, err error) {
	name, strong := identity.Name(id, address)
	m, isNew, err = c.enterAs(ctx, cluster, id, name, address, machines)
	if strong && err == nil && m == nil {
		name = identity.WeakName(id, address)
		m, isNew, err = c.enterAs(ctx, cluster, id, name, address, machines)
	}
	if err == nil && m == nil {
		err = &refusedError{fmt.Errorf("machine %s has the same serial number and MAC addresses and another UUID than this one (%s); delete it to have this one found", name, describe(id))}
	}
	return m, isNew, err
}

// enterAs makes an object of a name; it returns nil if another machine has the name.
func (c *Controller) enterAs(ctx context.Context, cluster *v1alpha1.TalosCluster, id identity.Identity, name, address string, machines []*v1alpha1.TalosMachine) (*v1alpha1.TalosMachine, bool, error) {
	if named(machines, name) != nil {
		return nil, false, nil // it was no match, or there would be nothing to enter
	}
	made, err := c.store.create(ctx, &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef:    v1alpha1.ClusterReference{Name: cluster.Name},
			Identity:      v1alpha1.MachineIdentity(id),
			Origin:        v1alpha1.MachineDiscovered,
			ApprovalState: v1alpha1.ApprovalPending,
		},
	})
	switch {
	case err == nil:
		return made, true, nil
	case apierrors.IsAlreadyExists(err):
		return c.existing(ctx, id, name, address)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return nil, false, &refusedError{fmt.Errorf("enter machine %s: %w", name, err)}
	default:
		return nil, false, fmt.Errorf("enter machine %s: %w", name, err)
	}
}

// existing reads an object that the cache doesn't show yet, and tells whether it is the machine's.
func (c *Controller) existing(ctx context.Context, id identity.Identity, name, address string) (*v1alpha1.TalosMachine, bool, error) {
	m, err := c.Client.IchorV1alpha1().TalosMachines().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, false, fmt.Errorf("read machine %s: %w", name, err)
	}
	c.store.remember(m)
	// Our list didn't have it, so it can't have been matched yet.
	return match([]*v1alpha1.TalosMachine{m}, id, address), false, nil
}
