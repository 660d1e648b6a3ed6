// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// resetTimeout bounds the call that tells a machine to wipe itself.
const resetTimeout = 90 * time.Second

// resetter wipes machines. Few may, so it is no part of talos.ConfiguredNode.
type resetter interface {
	Reset(ctx context.Context, options talos.ResetOptions) error
}

// reset tells the machine to wipe itself, on the connection on which it was judged. That it is about to be told is written
// down first; an old copy of the object ends it here.
func (v *visit) reset(ctx context.Context, node talos.ConfiguredNode, p *plan) (time.Duration, error) {
	connection, ok := node.(resetter)
	if !ok {
		return 0, errors.New("the connection to the machine can't reset it")
	}
	if err := v.write(ctx); err != nil {
		return 0, err
	}
	v.mu.Lock()
	v.told[v.r.UID] = v.Clock.Now()
	v.mu.Unlock()
	telling, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetTimeout)
	defer cancel()
	err := connection.Reset(telling, talos.ResetOptions{Graceful: p.graceful, UserDisks: others(p.wipe)})
	switch {
	case err == nil:
	case talos.IsLost(err):
		v.r.Status.Message = fmt.Sprintf("the answer to the reset was lost, so the machine is looked at: %s", err)
	default:
		v.end(v1alpha1.ReclaimFailed, fmt.Sprintf("the machine refuses to wipe itself: %s", err))
	}
	return lookSoon, nil
}

// follow looks what became of a machine that was told to wipe itself, or was about to be. It is done when the machine
// itself says so in maintenance mode.
func (v *visit) follow(ctx context.Context) (time.Duration, error) {
	probe := v.Prober.Probe(ctx, v.address)
	if probe.Class == v1alpha1.HostMaintenance {
		return v.inMaintenance(ctx, probe)
	}
	elsewhere, err := v.elsewhere(ctx)
	if err != nil {
		return 0, err
	}
	if elsewhere != "" {
		v.end(v1alpha1.ReclaimSucceeded, elsewhere)
		return 0, nil
	}
	if v.Clock.Since(v.intendedAt()) > resetFor {
		v.end(v1alpha1.ReclaimFailed, fmt.Sprintf("the machine has not come back in maintenance mode for %s; look at its console. What was to be wiped may be gone", resetFor))
		return 0, nil
	}
	credentials, why, err := v.credentials(ctx)
	if err != nil {
		return 0, err
	}
	if why != "" {
		return lookAgain, nil // it can come back without
	}
	node, err := v.Dialer.DialConfigured(ctx, v.address, credentials)
	if err != nil {
		return lookSoon, nil // on its way
	}
	defer node.Close() //nolint:errcheck // what was said on it was answered
	return v.still(ctx, node, credentials)
}

// inMaintenance is a machine in maintenance mode at the address: the one that was named, or another one.
func (v *visit) inMaintenance(ctx context.Context, probe talos.Probe) (time.Duration, error) {
	node, err := v.Dialer.DialMaintenance(ctx, v.address, probe.Fingerprint)
	if err != nil {
		return lookSoon, nil // it has another certificate by now, or is gone
	}
	defer node.Close() //nolint:errcheck // it was read from only
	who, err := node.Identity(ctx)
	if err != nil {
		return lookSoon, nil
	}
	if !v.named(who) {
		v.wait("a machine with the UUID %q waits at %s, which isn't the one that is reclaimed", who.UUID, v.address)
		return lookAgain, nil
	}
	v.end(v1alpha1.ReclaimSucceeded, fmt.Sprintf("the machine is in maintenance mode at %s; it can be approved once it is found (spec.discovery of the cluster)", v.address))
	return 0, nil
}

// elsewhere says that the search found the machine in maintenance mode, wherever that is: another address is usual without
// its configuration. It had no object when it was told to wipe itself.
func (v *visit) elsewhere(ctx context.Context) (string, error) {
	_, err := v.Client.IchorV1alpha1().TalosMachines().Get(ctx, v.r.Spec.UUID, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for a machine of UUID %s: %w", v.r.Spec.UUID, err)
	}
	return fmt.Sprintf("the machine was found in maintenance mode as TalosMachine %s, and can be approved", v.r.Spec.UUID), nil
}

// still is a machine that lets its old cluster's clients in although it was told to wipe itself, or was about to be.
func (v *visit) still(ctx context.Context, node talos.ConfiguredNode, credentials talos.Credentials) (time.Duration, error) {
	who, err := node.Identity(ctx)
	if err != nil {
		return lookSoon, nil
	}
	if !v.named(who) {
		v.wait("another machine of the old cluster answers at %s, with the UUID %q; nothing is done to it", v.address, who.UUID)
		return lookAgain, nil
	}
	boot, err := node.BootID(ctx)
	if err != nil {
		return lookSoon, nil
	}
	stage, err := node.Stage(ctx)
	if err != nil {
		return lookSoon, nil
	}
	switch {
	case boot != v.r.Status.BootID:
		v.end(v1alpha1.ReclaimFailed, "the machine rebooted and still has its configuration: it could not wipe itself, and its console says why; or it rebooted before it was told. Make another reclaim to try again")
		return 0, nil
	case stage.Stage == v1alpha1.StageResetting || stage.Stage == v1alpha1.StageRebooting || stage.Stage == v1alpha1.StageShuttingDown:
		v.wait("the machine is %s; wiping %s", stage.Stage, listed(v.r.Status.WillWipe))
		return lookSoon, nil
	case v.Clock.Since(v.lastTold()) < resendAfter:
		return lookSoon, nil
	}
	// It never heard of it, or another sequence was in the way: judged anew, it is told again.
	p, why, err := v.judge(ctx, node, credentials)
	if err != nil {
		v.wait("%s", err)
		return lookAgain, nil
	}
	if why != "" {
		v.end(v1alpha1.ReclaimFailed, why)
		return 0, nil
	}
	v.r.Status.WillWipe, v.r.Status.WillKeep = p.wipe, p.keep
	return v.reset(ctx, node, p)
}

// lastTold is when the machine was told last, as far as this process knows.
func (v *visit) lastTold() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	if at, known := v.told[v.r.UID]; known {
		return at
	}
	return v.intendedAt()
}
