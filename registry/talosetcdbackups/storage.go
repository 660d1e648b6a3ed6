// SPDX-License-Identifier: Apache-2.0

// Package talosetcdbackups is the storage of TalosEtcdBackups.
package talosetcdbackups

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/progress"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/standard"
)

type (
	object = *ichor.TalosEtcdBackup
	spec   = ichor.TalosEtcdBackupSpec
	status = ichor.TalosEtcdBackupStatus
)

// Storage is the storage of the kind.
type Storage = standard.Storage[object, spec, status]

// New builds it.
func New(typer runtime.ObjectTyper, options generic.RESTOptionsGetter) (*Storage, error) {
	return standard.New(typer, options, standard.Kind[object, spec, status]{
		Resource: "talosetcdbackups", Singular: "talosetcdbackup", ShortNames: []string{"teb"},
		New:            func() object { return &ichor.TalosEtcdBackup{} },
		NewList:        func() runtime.Object { return &ichor.TalosEtcdBackupList{} },
		Spec:           func(b object) *spec { return &b.Spec },
		Status:         func(b object) *status { return &b.Status },
		Conditions:     func(b object) *[]metav1.Condition { return &b.Status.Conditions },
		Progress:       progress.TalosEtcdBackup,
		Validate:       validation.ValidateTalosEtcdBackup,
		ValidateUpdate: validation.ValidateTalosEtcdBackupUpdate,
		ValidateStatus: validation.ValidateTalosEtcdBackupStatusUpdate,
		Warnings:       validation.EtcdBackupWarnings,
		Selectable: func(b object) fields.Set {
			return fields.Set{"spec.clusterRef.name": b.Spec.ClusterRef.Name, "spec.storageRef.name": b.Spec.StorageRef.Name}
		},
		Columns: []metav1.TableColumnDefinition{
			standard.Column("Schedule", "When a backup is taken."),
			standard.Column("Last", "How long ago the newest verified backup was taken."),
			standard.Column("Size", "Size of the newest backup before it was encrypted."),
			standard.Column("Count", "How many backups there are."),
			standard.Column("Ready", "Whether the last backup that was due is verified."),
			standard.Wide("Storage", "Where the backups are."),
			standard.Wide("Cluster", "Whose etcd is backed up."),
		},
		Cells: cells,
	})
}

func cells(backup object) []any {
	schedule := standard.Text(backup.Spec.Schedule)
	if backup.Spec.Suspend {
		schedule += " (suspended)"
	}
	size := standard.None
	if newest := backup.Status.Backups; len(newest) > 0 {
		size = newest[0].Size.String()
	}
	return []any{
		schedule, standard.Ago(backup.Status.LastVerifiedTime), size, strconv.Itoa(int(backup.Status.Count)),
		standard.Condition(backup.Status.Conditions, "Ready"), backup.Spec.StorageRef.Name, backup.Spec.ClusterRef.Name,
	}
}
