// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
)

const (
	maxRetention     = 1000
	maxBackupRecords = 32
)

// ValidateTalosEtcdBackup judges a backup.
func ValidateTalosEtcdBackup(backup *ichor.TalosEtcdBackup) field.ErrorList {
	path, spec := field.NewPath("spec"), &backup.Spec
	errs := objectName(backup.Name, field.NewPath("metadata", "name"))
	errs = append(errs, clusterRef(spec.ClusterRef, path.Child("clusterRef"))...)
	errs = append(errs, objectName(spec.StorageRef.Name, path.Child("storageRef", "name"))...)
	if spec.Schedule != "" {
		errs = append(errs, cronFields(spec.Schedule, spec.TimeZone, path.Child("schedule"), path.Child("timeZone"))...)
	} else {
		errs = append(errs, timeZone(spec.TimeZone, path.Child("timeZone"))...)
	}
	errs = append(errs, request(spec.BackupRequest, path.Child("backupRequest"))...)
	errs = append(errs, between(spec.Retention.Count, 1, maxRetention, path.Child("retention", "count"))...)
	errs = append(errs, lasting(spec.Retention.MaxAge, time.Hour, 0, path.Child("retention", "maxAge"))...)
	encryption := path.Child("encryption")
	errs = append(errs, exactlyOne(encryption, member{"age", spec.Encryption.Age != nil})...)
	if spec.Encryption.Age != nil {
		errs = append(errs, ageRecipients(spec.Encryption.Age.Recipients, encryption.Child("age", "recipients"))...)
	}
	return errs
}

// ValidateTalosEtcdBackupUpdate judges a change through the main resource.
func ValidateTalosEtcdBackupUpdate(backup, was *ichor.TalosEtcdBackup) field.ErrorList {
	path := field.NewPath("spec")
	errs := ValidateTalosEtcdBackup(backup)
	errs = append(errs, immutable(backup.Spec.ClusterRef, was.Spec.ClusterRef, path.Child("clusterRef"), "can't be changed; make a backup for the other cluster")...)
	return append(errs, immutable(backup.Spec.StorageRef, was.Spec.StorageRef, path.Child("storageRef"), "can't be changed; make a backup for the other storage")...)
}

// ValidateTalosEtcdBackupStatusUpdate judges a status.
func ValidateTalosEtcdBackupStatusUpdate(backup, _ *ichor.TalosEtcdBackup) field.ErrorList {
	path := field.NewPath("status")
	errs := conditions(backup.Status.Conditions, path)
	if len(backup.Status.Backups) > maxBackupRecords {
		errs = append(errs, field.TooMany(path.Child("backups"), len(backup.Status.Backups), maxBackupRecords))
	}
	return errs
}

// EtcdBackupWarnings tell of what is allowed and may be unwise.
func EtcdBackupWarnings(backup *ichor.TalosEtcdBackup) []string {
	var warnings []string
	if backup.Spec.Schedule == "" && backup.Spec.BackupRequest == "" {
		warnings = append(warnings, "spec.schedule: empty, so no backup is taken until spec.backupRequest asks for one")
	}
	if backup.Spec.Suspend {
		warnings = append(warnings, "spec.suspend: no backup is taken by the schedule")
	}
	if age := backup.Spec.Encryption.Age; age != nil && len(age.Recipients) == 1 {
		warnings = append(warnings, fmt.Sprintf("spec.encryption.age.recipients: %d key; if it is lost, so are all backups", len(age.Recipients)))
	}
	if backup.Spec.Schedule == "" || backup.Spec.Suspend {
		return warnings
	}
	warnings = append(warnings, rareWarnings("spec.schedule", "a backup is taken", backup.Spec.Schedule, backup.Spec.TimeZone)...)
	return append(warnings, retentionWarnings(&backup.Spec)...)
}
