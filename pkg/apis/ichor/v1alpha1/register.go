// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GroupName is the API group of every Ichor resource.
const GroupName = "ichor.maesh.dev"

// SchemeGroupVersion is the group and version of the types in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

var (
	// SchemeBuilder collects the functions that add this version to a scheme.
	SchemeBuilder      = runtime.NewSchemeBuilder(addKnownTypes, addDefaultingFuncs, addFieldLabelConversions)
	localSchemeBuilder = &SchemeBuilder
	// AddToScheme adds this version's types, defaults, conversions and field selectors to a scheme.
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
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
