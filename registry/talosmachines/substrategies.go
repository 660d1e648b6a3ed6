// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/reset"
)

// statusStrategy is the door for what was observed.
type statusStrategy struct{ strategy }

// GetResetFields is all but the status.
func (statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return reset.Status("metadata", "spec")
}

// PrepareForUpdate keeps all but the status.
func (statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	machine, was := obj.(*ichor.TalosMachine), old.(*ichor.TalosMachine)
	keepMeta(machine, was)
	machine.Spec = was.Spec
	recordProgress(machine, was.Status.Conditions)
}

// ValidateUpdate judges a status.
func (statusStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateTalosMachineStatusUpdate(obj.(*ichor.TalosMachine), old.(*ichor.TalosMachine))
}

// finalizeStrategy is the door through which the controller lets an object go.
type finalizeStrategy struct{ strategy }

// GetResetFields is all but the finalizers.
func (finalizeStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return reset.Fields("metadata.labels", "metadata.annotations", "metadata.ownerReferences", "metadata.deletionTimestamp", "spec", "status")
}

// PrepareForUpdate keeps all but the finalizers.
func (finalizeStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	machine, was := obj.(*ichor.TalosMachine), old.(*ichor.TalosMachine)
	finalizers := machine.Finalizers
	keepMeta(machine, was)
	machine.Finalizers = finalizers
	machine.Spec, machine.Status = was.Spec, was.Status
}

// ValidateUpdate judges a change of the finalizers.
func (finalizeStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateTalosMachineFinalizeUpdate(obj.(*ichor.TalosMachine), old.(*ichor.TalosMachine))
}
