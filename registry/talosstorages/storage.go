// SPDX-License-Identifier: Apache-2.0

// Package talosstorages is the storage of TalosStorages.
package talosstorages

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/progress"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/standard"
)

// CauseStorageInUse says that backups go to the storage.
const CauseStorageInUse metav1.CauseType = "StorageInUse"

type (
	object = *ichor.TalosStorage
	spec   = ichor.TalosStorageSpec
	status = ichor.TalosStorageStatus
)

// Storage is the storage of the kind.
type Storage = standard.Storage[object, spec, status]

// New builds it. Users returns the names of the backups that go to a storage.
func New(typer runtime.ObjectTyper, options generic.RESTOptionsGetter, users func(ctx context.Context, storage string) ([]string, error)) (*Storage, error) {
	return standard.New(typer, options, standard.Kind[object, spec, status]{
		Resource: "talosstorages", Singular: "talosstorage", ShortNames: []string{"tst"},
		New:            func() object { return &ichor.TalosStorage{} },
		NewList:        func() runtime.Object { return &ichor.TalosStorageList{} },
		Spec:           func(s object) *spec { return &s.Spec },
		Status:         func(s object) *status { return &s.Status },
		Conditions:     func(s object) *[]metav1.Condition { return &s.Status.Conditions },
		Progress:       progress.TalosStorage,
		Validate:       validation.ValidateTalosStorage,
		ValidateUpdate: validation.ValidateTalosStorageUpdate,
		ValidateStatus: validation.ValidateTalosStorageStatusUpdate,
		Warnings:       validation.StorageWarnings,
		// A help, not an invariant: a backup that is made at the same time says by its condition that its storage is gone.
		Guard: standard.Guard[object]{Delete: func(ctx context.Context, storage object) error {
			names, err := users(ctx, storage.Name)
			if err != nil || len(names) == 0 {
				return err
			}
			return standard.Refuse("talosstorages", storage.Name, CauseStorageInUse, "metadata.name",
				"backups go to it: "+strings.Join(names, ", ")+"; delete those first (what is in the bucket stays)")
		}},
		Columns: []metav1.TableColumnDefinition{
			standard.Column("Endpoint", "The server."),
			standard.Column("Bucket", "The bucket."),
			standard.Column("Ready", "Whether objects could be written, read back and deleted."),
			standard.Wide("Prefix", "What the keys begin with."),
			standard.Wide("Region", "The region that requests are signed for."),
		},
		Cells: func(s object) []any {
			return []any{s.Spec.Endpoint, s.Spec.Bucket, standard.Condition(s.Status.Conditions, "Ready"), standard.Text(s.Spec.Prefix), s.Spec.Region}
		},
	})
}
