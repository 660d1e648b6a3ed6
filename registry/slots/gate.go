// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// Causes of a refusal, for programs.
const (
	// CauseCapacity says that all slots are held.
	CauseCapacity metav1.CauseType = "ControlPlaneCapacity"
	// CauseHostnameTaken says that another control plane has the hostname.
	CauseHostnameTaken metav1.CauseType = "HostnameTaken"
	// CauseClusterDeleting says that the cluster is being deleted.
	CauseClusterDeleting metav1.CauseType = "ClusterDeleting"
)

// DefaultGrace is how old an unproven slot is before it is reaped: twice the time a request may take. It is politeness
// towards approvals on their way; that they can't go wrong doesn't depend on clocks.
const DefaultGrace = 2 * time.Minute

// Gate takes and frees the slots of clusters.
type Gate struct {
	store    Store
	grace    time.Duration
	now      func() time.Time
	newToken func() string
	unqueued bool
	rules    rules
}

// Option changes a Gate; tests use them.
type Option func(*Gate)

// WithGrace sets how old an unproven slot is before it is reaped.
func WithGrace(grace time.Duration) Option { return func(g *Gate) { g.grace = grace } }

// WithClock sets the clock.
func WithClock(now func() time.Time) Option { return func(g *Gate) { g.now = now } }

// WithTokens sets where tokens come from. No two may be equal.
func WithTokens(next func() string) Option { return func(g *Gate) { g.newToken = next } }

// WithoutQueue lets changes of one cluster go to the store as they come: for tests that decide themselves whose turn it
// is, and who is never heard of again.
func WithoutQueue() Option { return func(g *Gate) { g.unqueued = true } }

// NewGate returns a gate over the store. Its changes of one cluster wait for each other (Queue).
func NewGate(store Store, options ...Option) *Gate {
	g := &Gate{store: store, grace: DefaultGrace, now: time.Now, newToken: uuid.NewString}
	for _, option := range options {
		option(g)
	}
	if !g.unqueued {
		g.store = Queue(store)
	}
	return g
}

// Request says for which machine a slot is asked.
type Request struct {
	// Cluster is the name of the cluster.
	Cluster string
	// MachineUID and Machine are the UID and the name of the machine.
	MachineUID types.UID
	Machine    string
	// Hostname that the control plane will have; empty if Talos chooses it.
	Hostname string
}

// Claim is a slot that was taken. The machine may be written as approved only as what the claim says.
type Claim struct {
	Request
	// ClusterUID tells the cluster from a later one of the same name.
	ClusterUID types.UID
	// Token of the slot.
	Token string
}

// Claim takes a slot for the machine, or takes its own again with a new token: the new token is what defeats a reaper
// that is about to remove it. Call it after the version of the machine was read that the approval is fenced on. What
// it takes is never given back by the caller: another approval of the same machine may already rely on it.
func (g *Gate) Claim(ctx context.Context, request Request) (Claim, error) {
	claim, err := g.claimOnce(ctx, request)
	var refused *refusal
	var renamed *otherHostname
	switch {
	case errors.As(err, &renamed):
		// An approval with the old hostname may be on its way, relying on the slot. It is fenced off like a stale one.
		if _, err := g.reapSlot(ctx, request.Cluster, renamed.slot, 0); err != nil {
			return Claim{}, err
		}
		claim, err = g.claimOnce(ctx, request)
	case errors.As(err, &refused) && refused.reapable:
		if _, reapErr := g.Reap(ctx, request.Cluster); reapErr != nil {
			return Claim{}, reapErr
		}
		claim, err = g.claimOnce(ctx, request)
	}
	return claim, statusOf(err)
}

// Check says what Claim would, and changes nothing.
func (g *Gate) Check(ctx context.Context, request Request) (Claim, error) {
	cluster, err := g.store.Cluster(ctx, request.Cluster)
	if err != nil {
		return Claim{}, err
	}
	err = g.take(cluster, request, "dry-run")
	if renamed := (*otherHostname)(nil); err != nil && !errors.As(err, &renamed) {
		return Claim{}, statusOf(err)
	}
	return Claim{Request: request, ClusterUID: cluster.UID}, nil
}

func (g *Gate) claimOnce(ctx context.Context, request Request) (Claim, error) {
	claim := Claim{Request: request}
	err := g.store.UpdateCluster(ctx, request.Cluster, func(cluster *ichor.TalosCluster) error {
		claim.ClusterUID = cluster.UID
		claim.Token = g.newToken()
		return g.take(cluster, request, claim.Token)
	})
	return claim, err
}

// take changes the cluster so that the machine has a slot with the token.
func (g *Gate) take(cluster *ichor.TalosCluster, request Request, token string) error {
	if cluster.DeletionTimestamp != nil {
		return &refusal{request: request, cause: CauseClusterDeleting,
			message: fmt.Sprintf("cluster %q is being deleted", cluster.Name)}
	}
	if other := hostnameHolder(cluster, request.MachineUID, request.Hostname); other != nil && !g.rules.noHostname {
		return &refusal{request: request, cause: CauseHostnameTaken, field: "spec.hostname", reapable: true,
			message: fmt.Sprintf("hostname %q is taken by control plane %s; a control plane that joins replaces the etcd member of its hostname, so choose another",
				request.Hostname, other.Name)}
	}
	slot := find(cluster, request.MachineUID)
	if slot == nil && g.rules.noSlotPerUID {
		slot = ofName(cluster, request.Machine)
	}
	if slot != nil && slot.Hostname != request.Hostname && !g.rules.noRename {
		return &otherHostname{slot: *slot}
	}
	if slot == nil {
		if held := len(cluster.Status.ControlPlaneSlots); held >= Limit(cluster) {
			return &refusal{request: request, cause: CauseCapacity, field: "spec.role", reapable: true,
				message: fmt.Sprintf("cluster %q has a control plane count of %d, so at most %d control planes can be approved, and %d are: %s; remove one first, or raise spec.controlPlane.count",
					cluster.Name, cluster.Spec.ControlPlane.Count, Limit(cluster), held, strings.Join(Holders(cluster), ", "))}
		}
		cluster.Status.ControlPlaneSlots = append(cluster.Status.ControlPlaneSlots, ichor.ControlPlaneSlot{MachineUID: request.MachineUID})
		slot = &cluster.Status.ControlPlaneSlots[len(cluster.Status.ControlPlaneSlots)-1]
	}
	slot.Name, slot.Hostname = request.Machine, request.Hostname
	if slot.Token == "" || !g.rules.noNewToken {
		slot.Token = token
	}
	slot.At = metav1.NewTime(g.now()).Rfc3339Copy()
	Count(cluster)
	return nil
}

// otherHostname is a slot that the machine has already, with another hostname: two approvals of one machine differ.
// The slot can't just be rewritten, because the other approval would then be stored with a hostname that nobody holds.
type otherHostname struct{ slot ichor.ControlPlaneSlot }

func (o *otherHostname) Error() string {
	return fmt.Sprintf("machine %s is being approved with the hostname %q at the same time", o.slot.Name, o.slot.Hostname)
}

// refusal is why a slot wasn't given.
type refusal struct {
	request  Request
	cause    metav1.CauseType
	field    string
	message  string
	reapable bool
}

func (r *refusal) Error() string { return r.message }

// statusOf makes a refusal a 403: not a conflict, which clients would try again at once.
func statusOf(err error) error {
	var renamed *otherHostname
	if errors.As(err, &renamed) {
		return apierrors.NewConflict(ichor.Resource("talosmachines"), renamed.slot.Name, renamed)
	}
	var refused *refusal
	if !errors.As(err, &refused) {
		return err
	}
	status := apierrors.NewForbidden(ichor.Resource("talosmachines"), refused.request.Machine, refused)
	status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes,
		metav1.StatusCause{Type: refused.cause, Message: refused.message, Field: refused.field})
	return status
}
