// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:method=CreatePreview,verb=create,subresource=preview,input=maesh.dev/ichor/pkg/apis/ichor/v1alpha1.TalosConfigPatchPreview,result=maesh.dev/ichor/pkg/apis/ichor/v1alpha1.TalosConfigPatchPreview
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosConfigPatch is a piece of Talos machine configuration for some machines of a cluster. Patches are merged into
// what Ichor renders for a machine, the narrower ones after the wider ones: those for the whole cluster, for a role, for
// a selector, for machines by name; among these by priority, then by name. Where two set one field, the last one holds.
type TalosConfigPatch struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is what is set, and on which machines.
	Spec TalosConfigPatchSpec `json:"spec"`
	// status is what became of it, written by Ichor alone.
	// +optional
	Status TalosConfigPatchStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosConfigPatchList is a list of TalosConfigPatches.
type TalosConfigPatchList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the patches.
	Items []TalosConfigPatch `json:"items"`
}

// TalosConfigPatchSpec is what is set, and on which machines. At least one of machine, cluster and documents is given.
type TalosConfigPatchSpec struct {
	// target chooses the machines.
	Target PatchTarget `json:"target"`
	// priority orders patches whose targets are equally narrow: those with a low one are merged first, so that those with a
	// high one have the last word; equal ones are merged in the order of their names. 0 to 1,000,000. Defaults to 100.
	// +optional
	Priority *int32 `json:"priority,omitempty"`
	// disabled leaves the patch out, as if it weren't there. Defaults to false.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
	// machine is merged into the section "machine" of Talos' v1alpha1 configuration. Example:
	// {sysctls: {net.core.somaxconn: "4096"}}
	// +optional
	Machine *MachineSection `json:"machine,omitempty"`
	// cluster is merged into the section "cluster" of Talos' v1alpha1 configuration. Example:
	// {apiServer: {extraArgs: {event-ttl: 2h}}}
	// +optional
	Cluster *ClusterSection `json:"cluster,omitempty"`
	// documents are Talos' other configuration documents, each as Talos' own reference has it. A kind and name occurs
	// once. Example: {apiVersion: v1alpha1, kind: UserVolumeConfig, name: data, provisioning: {minSize: 100GiB}}
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	Documents []ConfigDocument `json:"documents,omitempty"`
	// secretValues fill fields of machine, cluster and documents from Secrets when the configuration is rendered, so
	// that the patch itself holds nothing that has to be kept secret. At most 64.
	// +optional
	// +listType=map
	// +listMapKey=path
	SecretValues []SecretValue `json:"secretValues,omitempty"`
}

// PatchTarget chooses machines: approved ones of the cluster that fit everything that is given.
type PatchTarget struct {
	// clusterRef is the cluster whose machines are meant.
	ClusterRef ClusterReference `json:"clusterRef"`
	// role is controlplane or worker. Empty: both.
	// +optional
	Role MachineRole `json:"role,omitempty"`
	// machineSelector chooses TalosMachines by their labels. Absent: all.
	// +optional
	MachineSelector *metav1.LabelSelector `json:"machineSelector,omitempty"`
	// machineNames are names of TalosMachines. Empty: all. At most 1,000.
	// +optional
	// +listType=set
	MachineNames []string `json:"machineNames,omitempty"`
}

// SecretValue fills one field of a patch from a Secret.
type SecretValue struct {
	// path is the field, as a JSON pointer (RFC 6901) into spec; a document is named by its kind and name. Examples:
	// /machine/env/PROXY_PASSWORD and /documents/RegistryAuthConfig/ghcr.io/password
	Path string `json:"path"`
	// secretKeyRef is where the value is.
	SecretKeyRef SecretKeyReference `json:"secretKeyRef"`
}

// SecretKeyReference names one key of a Secret in the namespace ichor-system, which must have the label
// ichor.maesh.dev/patch-values: "true".
type SecretKeyReference struct {
	// name of the Secret in ichor-system.
	Name string `json:"name"`
	// key in the Secret's data.
	Key string `json:"key"`
}

// TalosConfigPatchStatus is what became of a patch.
type TalosConfigPatchStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions say how the patch is: Ready, Conflicting.
	// The server adds Reconciling (on its way) and Stalled (waits for somebody), as kstatus reads them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// machines counts the machines of the target by what became of the patch on them.
	// +optional
	Machines PatchCounts `json:"machines,omitempty"`
	// refusals are the machines that can't have the patch, with the reason, at most 32.
	// +optional
	// +listType=map
	// +listMapKey=machine
	Refusals []PatchRefusal `json:"refusals,omitempty"`
}

// PatchCounts counts machines.
type PatchCounts struct {
	// matched machines are those that the target chooses.
	// +optional
	Matched int32 `json:"matched,omitempty"`
	// applied machines run with a configuration that has the patch in it.
	// +optional
	Applied int32 `json:"applied,omitempty"`
	// pendingReboot machines have the patch and need a reboot before it counts.
	// +optional
	PendingReboot int32 `json:"pendingReboot,omitempty"`
	// refused machines can't have it; they keep their last good configuration.
	// +optional
	Refused int32 `json:"refused,omitempty"`
}

// PatchRefusal says why a machine can't have a patch.
type PatchRefusal struct {
	// machine is the name of the TalosMachine.
	Machine string `json:"machine"`
	// path is the faulty field of the patch; empty if it is no single one.
	// +optional
	Path string `json:"path,omitempty"`
	// reason says what is wrong with it.
	Reason string `json:"reason"`
}
