// SPDX-License-Identifier: Apache-2.0

// Package machinereclaims is the storage of MachineReclaims. A UUID that is typed as consent must not be that of a
// machine that Ichor manages.
package machinereclaims

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/progress"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/standard"
)

type (
	object = *ichor.MachineReclaim
	spec   = ichor.MachineReclaimSpec
	status = ichor.MachineReclaimStatus
)

// Storage is the storage of the kind.
type Storage = standard.Storage[object, spec, status]

// New builds it. Machines returns all machines, at least as new as the call.
func New(typer runtime.ObjectTyper, options generic.RESTOptionsGetter, machines func(context.Context) ([]ichor.TalosMachine, error)) (*Storage, error) {
	return standard.New(typer, options, standard.Kind[object, spec, status]{
		Resource: "machinereclaims", Singular: "machinereclaim", ShortNames: []string{"mr"},
		New:        func() object { return &ichor.MachineReclaim{} },
		NewList:    func() runtime.Object { return &ichor.MachineReclaimList{} },
		Spec:       func(r object) *spec { return &r.Spec },
		Status:     func(r object) *status { return &r.Status },
		Conditions: func(r object) *[]metav1.Condition { return &r.Status.Conditions },
		Progress:   progress.MachineReclaim,
		Prepare: func(_ context.Context, r, _ object) {
			r.Spec.UUID = strings.ToLower(strings.TrimSpace(r.Spec.UUID))
		},
		Validate:       validation.ValidateMachineReclaim,
		ValidateUpdate: validation.ValidateMachineReclaimUpdate,
		ValidateStatus: validation.ValidateMachineReclaimStatusUpdate,
		Warnings:       validation.ReclaimWarnings,
		Guard: standard.Guard[object]{Create: func(ctx context.Context, reclaim object) error {
			return noLiveMachine(ctx, reclaim, machines)
		}},
		Selectable: func(r object) fields.Set {
			return fields.Set{"spec.uuid": r.Spec.UUID, "status.phase": string(r.Status.Phase)}
		},
		Columns: []metav1.TableColumnDefinition{
			standard.Column("Address", "Where the machine is dialled."),
			standard.Column("UUID", "The UUID that was typed as consent."),
			standard.Column("Phase", "Where it is."),
			standard.Column("Message", "What happens, or why it was refused."),
		},
		Cells: func(r object) []any {
			return []any{r.Spec.Address, r.Spec.UUID, standard.Text(r.Status.Phase), standard.Text(r.Status.Message)}
		},
	})
}

// noLiveMachine refuses the UUID of a machine that was approved: that one is removed, not reclaimed. A pending or
// rejected one waits in maintenance mode, and has nothing to reclaim either.
func noLiveMachine(ctx context.Context, reclaim object, machines func(context.Context) ([]ichor.TalosMachine, error)) error {
	all, err := machines(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		if !strings.EqualFold(all[i].Spec.Identity.UUID, reclaim.Spec.UUID) {
			continue
		}
		return apierrors.NewInvalid(ichor.Kind("MachineReclaim"), reclaim.Name, field.ErrorList{field.Invalid(field.NewPath("spec", "uuid"),
			reclaim.Spec.UUID, "is that of TalosMachine "+all[i].Name+", which Ichor manages; to reset that one, delete it")})
	}
	return nil
}
