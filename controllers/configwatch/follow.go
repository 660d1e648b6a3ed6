// SPDX-License-Identifier: Apache-2.0

package configwatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/klog/v2"

	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/talos"
)

const (
	// retryFirst and retryLongest pace attempts at a machine that doesn't let itself be watched.
	retryFirst   = 2 * time.Second
	retryLongest = 2 * time.Minute
	// lasted is how long a watch must have lasted for the pace to begin anew.
	lasted = time.Minute
	// longest is how long one connection is used: after it, the machine is asked again who it is, with new credentials.
	longest = time.Hour
	// checkTimeout bounds connecting and asking who it is.
	checkTimeout = 30 * time.Second
)

// follow keeps a machine watched until ctx ends.
func (c *Controller) follow(ctx context.Context, to target) {
	wait := retryFirst
	for ctx.Err() == nil {
		began := c.Clock.Now()
		err := c.once(ctx, to)
		if ctx.Err() != nil {
			return
		}
		lost.Inc()
		klog.FromContext(ctx).V(2).Info("watching the running configuration: trying again", "machine", to.name, "reason", err)
		if c.Clock.Since(began) >= lasted {
			wait = retryFirst
		}
		c.pause(ctx, jitter(wait))
		wait = min(2*wait, retryLongest)
	}
}

// jitter spreads machines that were lost together, over half the time more.
func jitter(d time.Duration) time.Duration { return d + time.Duration(rand.Int64N(int64(d)/2+1)) }

// once connects, makes sure on this very connection which machine it is, and watches until the connection ends.
func (c *Controller) once(ctx context.Context, to target) error {
	ctx, cancel := context.WithTimeout(ctx, jitter(longest))
	defer cancel()
	node, err := c.connect(ctx, to)
	if err != nil {
		return err
	}
	defer func() { _ = node.Close() }()
	return node.WatchConfiguration(ctx, func(hash string) { c.compare(to, hash) })
}

// connect returns a connection to the machine itself. Another one that answers there with the cluster's certificates is
// not believed.
func (c *Controller) connect(ctx context.Context, to target) (talos.ConfiguredNode, error) {
	select {
	case c.dials <- struct{}{}:
		defer func() { <-c.dials }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	m, err := c.machines.Get(to.name)
	if err != nil {
		return nil, fmt.Errorf("read machine %s: %w", to.name, err)
	}
	credentials, err := c.Credentials.CredentialsFor(ctx, to.cluster)
	if err != nil {
		return nil, fmt.Errorf("get credentials for cluster %s: %w", to.cluster, err)
	}
	node, err := c.Dialer.DialConfigured(ctx, to.address, credentials)
	if err != nil {
		return nil, err
	}
	who, err := node.Identity(ctx)
	if err == nil && !identity.SameMachine(identity.Identity(m.Spec.Identity), identity.Identity(who)) {
		err = fmt.Errorf("another machine answers at %s: UUID %s, serial number %q", to.address, who.UUID, who.SerialNumber)
	}
	if err != nil {
		_ = node.Close()
		return nil, err
	}
	return node, nil
}

// compare calls for a look at a machine that runs another configuration than was seen last. What was applied by Ichor
// itself is a change like any other: the look finds that it is as it should.
func (c *Controller) compare(to target, hash string) {
	m, err := c.machines.Get(to.name)
	if err != nil || m.UID != to.uid || m.Status.Config != nil && m.Status.Config.RunningHash == hash {
		return
	}
	changes.Inc()
	c.Changed(to.name)
}
