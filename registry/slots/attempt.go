// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"
	"errors"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// ErrMachineMoved says that the machine isn't the version any more that the slot was claimed for.
var ErrMachineMoved = errors.New("the machine was changed while it was being approved")

// Attempt is one try to approve one version of a machine. Its methods are called in this order: Claim, then, inside the
// transaction that writes the machine, Fence on what is stored and Covers on what would be. A failed attempt leaves its
// slot (rule "no release"); the next one begins with reading the machine again.
type Attempt struct {
	gate  *Gate
	was   *ichor.TalosMachine
	claim *Claim
}

// Attempt begins to approve the machine as it was just read, from a quorum.
func (g *Gate) Attempt(was *ichor.TalosMachine) *Attempt { return &Attempt{gate: g, was: was} }

// Claim takes a slot if the machine would become a control plane as the candidate; a dry run only says what it would do.
func (a *Attempt) Claim(ctx context.Context, candidate *ichor.TalosMachine, dryRun bool) error {
	if !a.needsSlot(candidate) {
		return nil
	}
	take := a.gate.Claim
	if dryRun {
		take = a.gate.Check
	}
	claim, err := take(ctx, Request{
		Cluster: candidate.Spec.ClusterRef.Name, MachineUID: a.was.UID, Machine: a.was.Name, Hostname: candidate.Spec.Hostname,
	})
	if err != nil {
		return err
	}
	a.claim = &claim
	return nil
}

// Fence returns ErrMachineMoved unless the stored machine is the one, in the version, that was read before the claim.
func (a *Attempt) Fence(now *ichor.TalosMachine) error {
	sameVersion := now.ResourceVersion == a.was.ResourceVersion || a.gate.rules.noVersion
	sameMachine := now.UID == a.was.UID || a.gate.rules.noUID
	if !sameVersion || !sameMachine {
		return ErrMachineMoved
	}
	return nil
}

// Covers tells whether the final object, after patching, admission and the strategy, is what was claimed. A machine that
// doesn't become a control plane needs no claim.
func (a *Attempt) Covers(final *ichor.TalosMachine) bool {
	if !a.needsSlot(final) {
		return true
	}
	claim, leftOut := a.claim, a.gate.rules
	if claim == nil {
		return leftOut.noFinalObject
	}
	asClaimed := claim.Cluster == final.Spec.ClusterRef.Name && claim.Hostname == final.Spec.Hostname
	sameCluster := final.Spec.Approval != nil && claim.ClusterUID == final.Spec.Approval.ClusterUID
	return (asClaimed || leftOut.noFinalObject) &&
		(claim.MachineUID == final.UID || leftOut.noUID) &&
		(sameCluster || leftOut.noClusterUID)
}

// needsSlot tells whether the machine becomes a control plane by being stored like this.
func (a *Attempt) needsSlot(machine *ichor.TalosMachine) bool {
	return a.was.Spec.ApprovalState != ichor.ApprovalApproved &&
		machine.Spec.ApprovalState == ichor.ApprovalApproved && machine.Spec.Role == ichor.RoleControlPlane
}
