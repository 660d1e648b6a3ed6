// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/progress"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/reset"
)

// strategy is what people may do with a TalosMachine through the main resource.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
}

func newStrategy(typer runtime.ObjectTyper) strategy {
	return strategy{ObjectTyper: typer, NameGenerator: names.SimpleNameGenerator}
}

// NamespaceScoped is false: machines belong to no namespace.
func (strategy) NamespaceScoped() bool { return false }

// AllowCreateOnUpdate is false: a PUT doesn't create.
func (strategy) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate is false: a PUT names the version that it was made from.
func (strategy) AllowUnconditionalUpdate(context.Context) bool { return false }

// GetResetFields are the fields that only subresources write.
func (strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return reset.Fields("status", "spec.approvalState", "spec.approval", "spec.identityResolution", "spec.role",
		"spec.nodeLabels", "spec.hostname", "spec.disks", "spec.network", "spec.removal.by", "spec.removal.at")
}

// PrepareForCreate makes every new machine a pending one about which nothing was decided or observed.
func (strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	machine := obj.(*ichor.TalosMachine)
	recordAsker(ctx, machine.Spec.Removal, nil)
	machine.Status = ichor.TalosMachineStatus{}
	machine.Generation = 1
	keepDecision(&machine.Spec, &ichor.TalosMachineSpec{ApprovalState: ichor.ApprovalPending})
	machine.Spec.IdentityResolution = nil
	normalizeIdentity(machine)
	machine.Finalizers = reset.Finalizers(machine.Finalizers, []string{v1alpha1.MachineFinalizer})
	recordProgress(machine, nil)
}

// PrepareForUpdate keeps what only subresources write.
func (strategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	machine, was := obj.(*ichor.TalosMachine), old.(*ichor.TalosMachine)
	machine.Status = was.Status
	recordAsker(ctx, machine.Spec.Removal, was.Spec.Removal)
	keepDecision(&machine.Spec, &was.Spec)
	machine.Spec.IdentityResolution = was.Spec.IdentityResolution
	normalizeIdentity(machine)
	machine.Finalizers = reset.Finalizers(machine.Finalizers, was.Finalizers)
	bumpGeneration(machine, was)
}

// Validate judges a new machine.
func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	machine := obj.(*ichor.TalosMachine)
	return append(validation.ValidateOwners(machine.OwnerReferences, nil), validation.ValidateTalosMachine(machine)...)
}

// ValidateUpdate judges a change through the main resource.
func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	machine, was := obj.(*ichor.TalosMachine), old.(*ichor.TalosMachine)
	return append(validation.ValidateOwners(machine.OwnerReferences, was.OwnerReferences), validation.ValidateTalosMachineUpdate(machine, was)...)
}

// WarningsOnCreate tells of what is allowed and may be unwise.
func (strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return validation.MachineWarnings(obj.(*ichor.TalosMachine))
}

// WarningsOnUpdate tells of what is allowed and may be unwise, when it is decided.
func (strategy) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	machine, was := obj.(*ichor.TalosMachine), old.(*ichor.TalosMachine)
	if machine.Spec.DeletionPolicy == was.Spec.DeletionPolicy {
		return nil
	}
	return validation.MachineWarnings(machine)
}

// Canonicalize changes nothing: the identity was normalised before it was judged.
func (strategy) Canonicalize(runtime.Object) {}

// keepDecision copies what the subresource "approval" writes, but for the cluster, which may be chosen until then.
func keepDecision(to, from *ichor.TalosMachineSpec) {
	to.ApprovalState, to.Approval = from.ApprovalState, from.Approval
	to.Role, to.Hostname, to.NodeLabels = from.Role, from.Hostname, from.NodeLabels
	to.Disks, to.Network = from.Disks, from.Network
}

func normalizeIdentity(machine *ichor.TalosMachine) {
	machine.Spec.Identity = ichor.MachineIdentity(identity.Normalize(identity.Identity(machine.Spec.Identity)))
}

// keepMeta undoes every change of the metadata but of managedFields and resourceVersion, which the generic registry
// needs as they came. Subresources call it: they change what their name says.
func keepMeta(machine, was *ichor.TalosMachine) {
	version, managed := machine.ResourceVersion, machine.ManagedFields
	machine.ObjectMeta = *was.ObjectMeta.DeepCopy()
	machine.ResourceVersion, machine.ManagedFields = version, managed
}

// bumpGeneration moves the generation when the spec changes, and says where the machine is with that. (The generic
// registry moves it at the deletion.)
func bumpGeneration(machine, was *ichor.TalosMachine) {
	if !apiequality.Semantic.DeepEqual(machine.Spec, was.Spec) {
		machine.Generation = was.Generation + 1
	}
	recordProgress(machine, was.Status.Conditions)
}

// recordProgress says in the conditions that every kind has where the machine is now.
func recordProgress(machine *ichor.TalosMachine, was []metav1.Condition) {
	progress.Record(&machine.Status.Conditions, was, machine.Generation, progress.TalosMachine(machine))
}

// GetAttrs returns what selectors see.
func GetAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	machine, ok := obj.(*ichor.TalosMachine)
	if !ok {
		return nil, nil, fmt.Errorf("select a TalosMachine: got %T", obj)
	}
	return machine.Labels, generic.MergeFieldsSets(generic.ObjectMetaFieldsSet(&machine.ObjectMeta, false), fields.Set{
		"spec.approvalState":   string(machine.Spec.ApprovalState),
		"spec.clusterRef.name": machine.Spec.ClusterRef.Name,
		"spec.role":            string(machine.Spec.Role),
		"status.stage":         string(machine.Status.Stage),
	}), nil
}

// nowFunc is replaced by tests.
var nowFunc = metav1.Now
