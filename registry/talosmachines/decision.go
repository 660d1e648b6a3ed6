// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/slots"
)

// Causes of a conflict between a decision and the machine as it is, for programs.
const (
	// CauseNotInspected says that the machine's hardware wasn't read yet.
	CauseNotInspected metav1.CauseType = "NotInspected"
	// CauseFingerprintChanged says that the machine presents another maintenance certificate than the approver saw.
	CauseFingerprintChanged metav1.CauseType = "FingerprintChanged"
	// CauseIdentityChanged says that the request is about another machine than the object is.
	CauseIdentityChanged metav1.CauseType = "IdentityChanged"
	// CauseIdentityUnresolved says that it isn't sure which machine it is.
	CauseIdentityUnresolved metav1.CauseType = "IdentityUnresolved"
	// CauseDeleting says that the machine is being deleted.
	CauseDeleting metav1.CauseType = "Deleting"
	// CauseChangedByAdmission says that an admission policy or webhook made another decision of it.
	CauseChangedByAdmission metav1.CauseType = "ChangedByAdmission"
)

// decision is one attempt to decide about one version of a machine.
type decision struct {
	intent *intent
	was    *ichor.TalosMachine
	// attempt is the gate's side of it.
	attempt *slots.Attempt
}

// judge makes the candidate what the store will make of it, and returns why it can't be stored, before anything is
// claimed: conflicts with the machine as it is first, then all faults of the decision at once.
func (d *decision) judge(ctx context.Context, strategy rest.RESTUpdateStrategy, candidate *ichor.TalosMachine) error {
	if err := d.unchangedByAdmission(candidate); err != nil {
		return err
	}
	prepared := candidate.DeepCopy()
	strategy.PrepareForUpdate(ctx, prepared, d.was.DeepCopy())
	if err := d.conflict(prepared); err != nil {
		return err
	}
	return rest.BeforeUpdate(strategy, withoutWarnings(ctx), candidate, d.was.DeepCopy())
}

// conflict returns why the decision can't be taken about the machine as it is now.
func (d *decision) conflict(machine *ichor.TalosMachine) error {
	was := d.was
	if was.DeletionTimestamp != nil {
		return d.conflictf(CauseDeleting, "metadata.deletionTimestamp", "the machine is being deleted")
	}
	if !validation.SameIdentity(machine.Spec.Identity, was.Spec.Identity) {
		return d.conflictf(CauseIdentityChanged, "spec.identity", "the request is about %s, this machine is %s",
			validation.DescribeIdentity(machine.Spec.Identity), validation.DescribeIdentity(was.Spec.Identity))
	}
	shown := machine.Spec.Approval.MaintenanceFingerprint
	if was.Spec.ApprovalState == ichor.ApprovalApproved {
		if pinned := was.Spec.Approval.MaintenanceFingerprint; shown != pinned {
			return d.conflictf(CauseFingerprintChanged, "spec.approval.maintenanceFingerprint",
				"the machine was approved with fingerprint %q, the request names %q; what was approved stays pinned", pinned, shown)
		}
		return nil
	}
	approving := machine.Spec.ApprovalState == ichor.ApprovalApproved && was.Spec.ApprovalState == ichor.ApprovalPending
	if approving {
		if reason := validation.IdentityDoubt(was); reason != "" {
			return d.conflictf(CauseIdentityUnresolved, "spec.identityResolution",
				"it isn't sure which machine this is: %s; say so through talosmachines/identity first (ichor machine resolve)", reason)
		}
	}
	if was.Spec.Origin == ichor.MachineAdopted {
		return nil
	}
	if approving && was.Status.Inventory == nil {
		return d.conflictf(CauseNotInspected, "status.inventory", "the machine's hardware wasn't read yet; wait until it was seen in maintenance mode")
	}
	if now := was.Status.MaintenanceFingerprint; shown != "" && shown != now {
		return d.conflictf(CauseFingerprintChanged, "spec.approval.maintenanceFingerprint",
			"the approver was shown fingerprint %q, the machine presents %q now; compare it with the machine's console", shown, now)
	}
	return nil
}

// hold refuses the final object, as it would be stored, unless it is what was asked for and what the slot was claimed
// for. It runs after patching, mutating admission and the strategy.
func (d *decision) hold(machine *ichor.TalosMachine) error {
	if err := d.unchangedByAdmission(machine); err != nil {
		return err
	}
	if err := d.conflict(machine); err != nil {
		return err
	}
	if !d.attempt.Covers(machine) {
		return d.forbidden("the machine would become a control plane that no slot was claimed for")
	}
	return nil
}

// unchangedByAdmission refuses a decision that a policy or a webhook turned into another one: a person decides.
func (d *decision) unchangedByAdmission(machine *ichor.TalosMachine) error {
	asked := d.intent.asked
	if asked == nil {
		return nil
	}
	for _, changed := range []struct{ field, asked, got string }{
		{"spec.approvalState", string(asked.ApprovalState), string(machine.Spec.ApprovalState)},
		{"spec.role", string(asked.Role), string(machine.Spec.Role)},
		{"spec.clusterRef.name", asked.ClusterRef.Name, machine.Spec.ClusterRef.Name},
	} {
		if asked.ApprovalState != ichor.ApprovalApproved && changed.field != "spec.approvalState" {
			continue // a rejection decides nothing else, and keeps nothing else that was sent with it
		}
		if changed.asked != changed.got && !(changed.asked == "" && changed.field == "spec.clusterRef.name") {
			return d.forbidden(fmt.Sprintf("admission changed %s from %q to %q after the approver had decided", changed.field, changed.asked, changed.got))
		}
	}
	return nil
}

func (d *decision) forbidden(message string) error {
	status := apierrors.NewForbidden(ichor.Resource("talosmachines"), d.was.Name, fmt.Errorf("%s", message))
	status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: CauseChangedByAdmission, Message: message})
	return status
}

func (d *decision) conflictf(cause metav1.CauseType, field, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	status := apierrors.NewConflict(ichor.Resource("talosmachines"), d.was.Name, fmt.Errorf("%s", message))
	status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause, Message: message, Field: field})
	return status
}
