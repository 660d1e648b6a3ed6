// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/reset"
)

// approvalStrategy is the door for the decision about a machine, and for what was decided with it.
type approvalStrategy struct{ strategy }

type factsKey struct{}

// withFacts hands what else the decision is judged by to the strategy, which can't read storage.
func withFacts(ctx context.Context, facts validation.ApprovalFacts) context.Context {
	return context.WithValue(ctx, factsKey{}, facts)
}

func factsFrom(ctx context.Context) validation.ApprovalFacts {
	facts, _ := ctx.Value(factsKey{}).(validation.ApprovalFacts)
	return facts
}

// GetResetFields is all but the decision. Who decided, when and into which cluster is the server's to say.
func (approvalStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return reset.Fields("metadata", "status", "spec.origin", "spec.address", "spec.identityResolution", "spec.locked", "spec.deletionPolicy", "spec.removal",
		"spec.approval.by", "spec.approval.at", "spec.approval.clusterUID")
}

// PrepareForUpdate keeps all but the decision, and records who decided.
func (approvalStrategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	machine, was := obj.(*ichor.TalosMachine), old.(*ichor.TalosMachine)
	asked := machine.Spec
	keepMeta(machine, was)
	machine.Status = was.Status
	machine.Spec = *was.Spec.DeepCopy()
	if asked.ApprovalState == ichor.ApprovalApproved {
		keepDecision(&machine.Spec, &asked)
		if asked.ClusterRef.Name != "" {
			machine.Spec.ClusterRef = asked.ClusterRef
		}
	} else {
		machine.Spec.ApprovalState, machine.Spec.Approval = asked.ApprovalState, asked.Approval
	}
	// An identity that is echoed is compared later; one that is left out isn't.
	if echoed := identity.Normalize(identity.Identity(asked.Identity)); !apiequality.Semantic.DeepEqual(echoed, identity.Identity{}) {
		machine.Spec.Identity = ichor.MachineIdentity(echoed)
	}
	if network := machine.Spec.Network; network != nil {
		if mac := identity.NormalizeMAC(network.Interface.MAC); mac != "" {
			network.Interface.MAC = mac
		}
	}
	machine.Spec.Approval = record(ctx, machine, was)
	bumpGeneration(machine, was)
}

// record returns who decided what when. A decision that changes nothing leaves the record as it is.
func record(ctx context.Context, machine, was *ichor.TalosMachine) *ichor.MachineApproval {
	first := ichor.MachineApproval{}
	if was.Spec.Approval != nil {
		first = *was.Spec.Approval
	}
	approval := ichor.MachineApproval{}
	if machine.Spec.Approval != nil {
		approval.MaintenanceFingerprint = machine.Spec.Approval.MaintenanceFingerprint
		approval.Reason = machine.Spec.Approval.Reason
	}
	switch {
	case machine.Spec.Origin == ichor.MachineAdopted:
		approval.MaintenanceFingerprint = ""
	case was.Spec.ApprovalState == ichor.ApprovalApproved && approval.MaintenanceFingerprint == "":
		approval.MaintenanceFingerprint = first.MaintenanceFingerprint
	}
	approval.By, approval.At, approval.ClusterUID = first.By, first.At, first.ClusterUID
	candidate := machine.Spec.DeepCopy()
	candidate.Approval = &approval
	if was.Spec.Approval != nil && apiequality.Semantic.DeepEqual(*candidate, was.Spec) {
		return was.Spec.Approval
	}
	if user, ok := request.UserFrom(ctx); ok {
		approval.By = user.GetName()
	}
	now := nowFunc().Rfc3339Copy()
	approval.At = &now
	approval.ClusterUID = ""
	if cluster := factsFrom(ctx).Cluster; cluster != nil && machine.Spec.ApprovalState == ichor.ApprovalApproved {
		approval.ClusterUID = cluster.UID
	}
	return &approval
}

// ValidateUpdate judges the decision against what was seen on the machine, all faults at once.
func (approvalStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateTalosMachineApprovalUpdate(obj.(*ichor.TalosMachine), old.(*ichor.TalosMachine), factsFrom(ctx))
}

// WarningsOnUpdate tells of what is allowed and may be unwise.
func (approvalStrategy) WarningsOnUpdate(ctx context.Context, obj, _ runtime.Object) []string {
	return validation.ApprovalWarnings(obj.(*ichor.TalosMachine), factsFrom(ctx))
}

// identityStrategy is the door for a person's word on a doubtful identity.
type identityStrategy struct{ strategy }

// GetResetFields is all but the word itself. Who gave it and when is the server's to say.
func (identityStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return reset.Fields("metadata", "status", "spec.clusterRef", "spec.identity", "spec.origin", "spec.address", "spec.approvalState", "spec.approval",
		"spec.role", "spec.nodeLabels", "spec.hostname", "spec.disks", "spec.network", "spec.locked", "spec.deletionPolicy", "spec.removal",
		"spec.identityResolution.by", "spec.identityResolution.at")
}

// PrepareForUpdate keeps all but the word, and records who gave it.
func (identityStrategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	machine, was := obj.(*ichor.TalosMachine), old.(*ichor.TalosMachine)
	asked := machine.Spec.IdentityResolution
	keepMeta(machine, was)
	machine.Status = was.Status
	machine.Spec = *was.Spec.DeepCopy()
	if asked == nil {
		machine.Spec.IdentityResolution = nil
		bumpGeneration(machine, was)
		return
	}
	if first := was.Spec.IdentityResolution; first != nil && first.Decision == asked.Decision && first.Machine == asked.Machine {
		return
	}
	now := nowFunc().Rfc3339Copy()
	resolution := &ichor.IdentityResolution{Decision: asked.Decision, Machine: asked.Machine, At: &now}
	if user, ok := request.UserFrom(ctx); ok {
		resolution.By = user.GetName()
	}
	machine.Spec.IdentityResolution = resolution
	bumpGeneration(machine, was)
}

// ValidateUpdate judges the word.
func (identityStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateTalosMachineIdentityUpdate(obj.(*ichor.TalosMachine), old.(*ichor.TalosMachine), factsFrom(ctx))
}
