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
	"maesh.dev/ichor/pkg/talos"
)

// reconcileMachine judges the identity of a machine that waits for a person, and carries out what a person said of it.
func (c *Controller) reconcileMachine(ctx context.Context, name string) error {
	c.recording.Lock()
	defer c.recording.Unlock()
	machines, err := c.store.all()
	if err != nil {
		return err
	}
	m := named(machines, name)
	if m == nil || !waits(m) {
		return nil
	}
	if word := m.Spec.IdentityResolution; word != nil && word.Decision == v1alpha1.IdentitySameAs {
		if target := named(machines, word.Machine); target != nil && target.DeletionTimestamp == nil {
			return c.merge(ctx, m, target)
		}
	}
	_, err = c.store.update(ctx, m, func(m *v1alpha1.TalosMachine) {
		if waits(m) {
			setCondition(m, v1alpha1.ConditionIdentityResolved, judge(m, machines))
		}
	})
	return err
}

// merge moves the address of a machine to the object that a person said it is (a configured one gets it besides its own), remembers that, and lets its own object
// go. Each step may be repeated.
func (c *Controller) merge(ctx context.Context, m, target *v1alpha1.TalosMachine) error {
	by := m.Spec.IdentityResolution.By
	seen := identity.Identity(m.Spec.Identity)
	written, err := c.store.update(ctx, target, func(target *v1alpha1.TalosMachine) {
		switch {
		case len(m.Status.Addresses) == 0:
		case sent(target):
			alsoAt(&target.Status, m.Status.Addresses[0])
		default:
			target.Status.Addresses = m.Status.Addresses
		}
		if m.Status.MaintenanceFingerprint != "" {
			noteFingerprint(&target.Status, talos.Fingerprint(m.Status.MaintenanceFingerprint), c.Clock.Now())
		}
		if waits(target) {
			target.Status.Inventory = m.Status.Inventory
		}
		setCondition(target, v1alpha1.ConditionIdentityResolved, verdict{metav1.ConditionTrue, v1alpha1.ReasonResolvedByPerson, aliasRecord(by, seen)})
	})
	if err != nil || written == nil {
		return err
	}
	err = c.Client.IchorV1alpha1().TalosMachines().Delete(ctx, m.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete machine %s, which is the same as %s: %w", m.Name, target.Name, err)
	}
	c.Recorder.Eventf(written, corev1.EventTypeNormal, eventMerged, "%s said that machine %s (%s) is this one", by, m.Name, describe(seen))
	return nil
}

// named finds an object by its name.
func named(machines []*v1alpha1.TalosMachine, name string) *v1alpha1.TalosMachine {
	for _, m := range machines {
		if m.Name == name {
			return m
		}
	}
	return nil
}
