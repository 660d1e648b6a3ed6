// SPDX-License-Identifier: Apache-2.0

// Package ichorinstallations is the storage of the one IchorInstallation.
package ichorinstallations

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/progress"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/standard"
)

type (
	object = *ichor.IchorInstallation
	spec   = ichor.IchorInstallationSpec
	status = ichor.IchorInstallationStatus
)

// Storage is the storage of the kind.
type Storage = standard.Storage[object, spec, status]

// New builds it.
func New(typer runtime.ObjectTyper, options generic.RESTOptionsGetter) (*Storage, error) {
	return standard.New(typer, options, standard.Kind[object, spec, status]{
		Resource: "ichorinstallations", Singular: "ichorinstallation", ShortNames: []string{"ii"},
		New:            func() object { return &ichor.IchorInstallation{} },
		NewList:        func() runtime.Object { return &ichor.IchorInstallationList{} },
		Spec:           func(i object) *spec { return &i.Spec },
		Status:         func(i object) *status { return &i.Status },
		Conditions:     func(i object) *[]metav1.Condition { return &i.Status.Conditions },
		Progress:       progress.IchorInstallation,
		Validate:       validation.ValidateIchorInstallation,
		ValidateUpdate: validation.ValidateIchorInstallationUpdate,
		ValidateStatus: validation.ValidateIchorInstallationStatusUpdate,
		Warnings:       validation.InstallationWarnings,
		Columns: []metav1.TableColumnDefinition{
			standard.Column("Version", "The version that runs."),
			standard.Column("Desired", "The version that should run."),
			standard.Column("Ready", "Whether all parts run."),
			standard.Wide("URL", "Where the web page is."),
		},
		Cells: func(i object) []any {
			return []any{standard.Text(i.Status.Version), i.Spec.Version, standard.Condition(i.Status.Conditions, "Ready"), standard.Text(i.Status.URL)}
		},
	})
}
