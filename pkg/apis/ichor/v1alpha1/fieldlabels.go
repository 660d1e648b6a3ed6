// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// MachineFieldLabels are the field selectors of talosmachines. Once published, a selector is part of the API.
var MachineFieldLabels = []string{"metadata.name", "spec.approvalState", "spec.clusterRef.name", "spec.role", "status.stage"}

// ClusterFieldLabels are the field selectors of talosclusters.
var ClusterFieldLabels = []string{"metadata.name"}

// Field selectors of the other kinds.
var (
	// PatchFieldLabels are those of talosconfigpatches.
	PatchFieldLabels = []string{"metadata.name", "spec.target.clusterRef.name"}
	// OperationFieldLabels are those of talosoperations.
	OperationFieldLabels = []string{"metadata.name", "spec.clusterRef.name", "status.phase"}
	// BackupFieldLabels are those of talosetcdbackups.
	BackupFieldLabels = []string{"metadata.name", "spec.clusterRef.name", "spec.storageRef.name"}
	// StorageFieldLabels are those of talosstorages.
	StorageFieldLabels = []string{"metadata.name"}
	// ReclaimFieldLabels are those of machinereclaims.
	ReclaimFieldLabels = []string{"metadata.name", "spec.uuid", "status.phase"}
	// CredentialRequestFieldLabels are those of taloscredentialrequests.
	CredentialRequestFieldLabels = []string{"metadata.name", "spec.clusterRef.name", "spec.role"}
	// InstallationFieldLabels are those of ichorinstallations.
	InstallationFieldLabels = []string{"metadata.name"}
	// UserFieldLabels are those of ichorusers.
	UserFieldLabels = []string{"metadata.name", "spec.role"}
)

func addFieldLabelConversions(scheme *runtime.Scheme) error {
	for kind, labels := range map[string][]string{
		"TalosCluster": ClusterFieldLabels, "TalosMachine": MachineFieldLabels,
		"TalosConfigPatch": PatchFieldLabels, "TalosOperation": OperationFieldLabels,
		"TalosEtcdBackup": BackupFieldLabels, "TalosStorage": StorageFieldLabels,
		"MachineReclaim": ReclaimFieldLabels, "TalosCredentialRequest": CredentialRequestFieldLabels,
		"IchorInstallation": InstallationFieldLabels, "IchorUser": UserFieldLabels,
	} {
		if err := scheme.AddFieldLabelConversionFunc(SchemeGroupVersion.WithKind(kind), allow(kind, labels)); err != nil {
			return err
		}
	}
	return nil
}

func allow(kind string, labels []string) runtime.FieldLabelConversionFunc {
	return func(label, value string) (string, string, error) {
		for _, known := range labels {
			if label == known {
				return label, value, nil
			}
		}
		return "", "", fmt.Errorf("field selector %q is not supported for %s; supported are %v", label, kind, labels)
	}
}
