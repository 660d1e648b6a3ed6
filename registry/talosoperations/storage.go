// SPDX-License-Identifier: Apache-2.0

// Package talosoperations is the storage of TalosOperations. An operation can't be changed once it is made, but for
// spec.suspend; what people ask of a running one goes through the subresources "resume" and "cancel", which record who
// asked and when.
package talosoperations

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/progress"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/standard"
)

// CauseOperationRunning says that an operation can't be deleted while it works.
const CauseOperationRunning metav1.CauseType = "OperationRunning"

type (
	object = *ichor.TalosOperation
	spec   = ichor.TalosOperationSpec
	status = ichor.TalosOperationStatus
)

// Storage is the storage of the kind and its subresources.
type Storage struct {
	*standard.Storage[object, spec, status]
	// Resume and Cancel are the doors of their names.
	Resume, Cancel *standard.PartDoor[object]
}

// nowFunc is replaced by tests.
var nowFunc = metav1.Now

// New builds it.
func New(typer runtime.ObjectTyper, options generic.RESTOptionsGetter) (*Storage, error) {
	base, err := standard.New(typer, options, standard.Kind[object, spec, status]{
		Resource: "talosoperations", Singular: "talosoperation", ShortNames: []string{"talosop"},
		New:            func() object { return &ichor.TalosOperation{} },
		NewList:        func() runtime.Object { return &ichor.TalosOperationList{} },
		Spec:           func(o object) *spec { return &o.Spec },
		Status:         func(o object) *status { return &o.Status },
		Conditions:     func(o object) *[]metav1.Condition { return &o.Status.Conditions },
		Progress:       progress.TalosOperation,
		Locked:         []string{"spec.control"},
		Keep:           func(to, from *spec) { to.Control = from.Control },
		Validate:       validate,
		ValidateUpdate: validation.ValidateTalosOperationUpdate,
		ValidateStatus: validation.ValidateTalosOperationStatusUpdate,
		Warnings:       validation.OperationWarnings,
		Guard:          standard.Guard[object]{Delete: notWhileItWorks},
		Selectable: func(o object) fields.Set {
			return fields.Set{"spec.clusterRef.name": o.Spec.ClusterRef.Name, "status.phase": string(o.Status.Phase)}
		},
		Columns: []metav1.TableColumnDefinition{
			standard.Column("Type", "What is done."),
			standard.Column("Phase", "Where it is."),
			standard.Column("Progress", "Machines that are done, of those in the plan."),
			standard.Column("Current", "The machine that is worked on."),
			standard.Column("Message", "What happens now, or what it waits for."),
		},
		Cells: cells,
	})
	if err != nil {
		return nil, err
	}
	return &Storage{
		Storage: base,
		Resume: base.Part(standard.Part[object, spec, status]{
			Validate: validation.ValidateTalosOperationControl,
			Take: func(ctx context.Context, _ *spec, old object) spec {
				return asked(ctx, old, func(control *ichor.OperationControl) { control.ResumeRequests++ })
			},
		}),
		Cancel: base.Part(standard.Part[object, spec, status]{
			Validate: validation.ValidateTalosOperationControl,
			Take: func(ctx context.Context, _ *spec, old object) spec {
				if old.Spec.Control != nil && old.Spec.Control.CancelRequested {
					return old.Spec // asking again changes nothing
				}
				return asked(ctx, old, func(control *ichor.OperationControl) { control.CancelRequested = true })
			},
		}),
	}, nil
}

// asked is the old spec with one more request of the user.
func asked(ctx context.Context, old object, change func(*ichor.OperationControl)) spec {
	next := *old.Spec.DeepCopy()
	if next.Control == nil {
		next.Control = &ichor.OperationControl{}
	}
	change(next.Control)
	if user, ok := request.UserFrom(ctx); ok {
		next.Control.By = user.GetName()
	}
	now := nowFunc()
	next.Control.At = &now
	return next
}

func validate(operation object) field.ErrorList {
	return append(validation.ValidateTalosOperation(operation), checkExpressions(operation.Spec.Gates, field.NewPath("spec", "gates"))...)
}

// notWhileItWorks keeps an operation that is in the middle of something: its status is the only record of what is still
// to be put back.
func notWhileItWorks(_ context.Context, operation object) error {
	switch operation.Status.Phase {
	case ichor.OperationWaiting, ichor.OperationRunning, ichor.OperationPaused:
		return standard.Refuse("talosoperations", operation.Name, CauseOperationRunning, "status.phase",
			fmt.Sprintf("it is %s; cancel it first, and delete it when it has ended", operation.Status.Phase))
	}
	return nil
}

func cells(operation object) []any {
	phase := standard.Text(operation.Status.Phase)
	if operation.Spec.Mode == ichor.OperationModePlan {
		phase += " (plan)"
	}
	progress := standard.None
	if operation.Status.Total > 0 {
		progress = fmt.Sprintf("%d/%d", operation.Status.Done, operation.Status.Total)
	}
	return []any{
		standard.Text(validation.OperationType(&operation.Spec)), phase, progress,
		standard.Text(operation.Status.Current), standard.Text(operation.Status.Message),
	}
}
