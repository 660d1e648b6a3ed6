// SPDX-License-Identifier: Apache-2.0

package ichor

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of every Ichor resource.
const GroupName = "ichor.maesh.dev"

// SchemeGroupVersion is the internal version.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: runtime.APIVersionInternal}

var (
	// SchemeBuilder collects the functions that add the internal version to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme adds the internal types to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Resource qualifies a resource name with the group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

// Kind qualifies a kind with the group.
func Kind(kind string) schema.GroupKind {
	return SchemeGroupVersion.WithKind(kind).GroupKind()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&TalosCluster{}, &TalosClusterList{},
		&TalosMachine{}, &TalosMachineList{},
		&TalosConfigPatch{}, &TalosConfigPatchList{},
		&TalosOperation{}, &TalosOperationList{},
		&TalosEtcdBackup{}, &TalosEtcdBackupList{},
		&TalosStorage{}, &TalosStorageList{},
		&MachineReclaim{}, &MachineReclaimList{},
		&TalosCredentialRequest{}, &TalosCredentialRequestList{},
		&IchorInstallation{}, &IchorInstallationList{},
		&IchorUser{}, &IchorUserList{},
		&UserPassword{}, &UserPasswordList{},
		&TalosMachineConfig{}, &TalosMachineConfigOptions{}, &TalosMachineDrift{}, &TalosMachineLogOptions{},
		&TalosMachineHistory{}, &TalosMachineHistoryOptions{}, &StoredConfigRevision{}, &StoredConfigRevisionList{},
		&TalosConfigPatchPreview{},
	)
	return nil
}
