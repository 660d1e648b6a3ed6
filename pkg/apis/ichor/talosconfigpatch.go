// SPDX-License-Identifier: Apache-2.0

package ichor

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosConfigPatch is a piece of Talos machine configuration for some machines of a cluster. Patches are merged into
// what Ichor renders for a machine in the order of their priority, then of their names; where two set one field, the
// last one holds.
type TalosConfigPatch struct {
	metav1.TypeMeta
	// metadata is the standard object's metadata.
	metav1.ObjectMeta
	// spec is what is set, and on which machines.
	Spec TalosConfigPatchSpec
	// status is what became of it, written by Ichor alone.
	Status TalosConfigPatchStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosConfigPatchList is a list of TalosConfigPatches.
type TalosConfigPatchList struct {
	metav1.TypeMeta
	// metadata is the standard list's metadata.
	metav1.ListMeta
	// items are the patches.
	Items []TalosConfigPatch
}

// TalosConfigPatchSpec is what is set, and on which machines. At least one of machine, cluster and documents is given.
type TalosConfigPatchSpec struct {
	// target chooses the machines.
	Target PatchTarget
	// priority orders patches: those with a low one are merged first, so that those with a high one have the last word;
	// equal ones are merged in the order of their names. 0 to 1,000,000. Defaults to 100.
	Priority *int32
	// disabled leaves the patch out, as if it weren't there. Defaults to false.
	Disabled bool
	// machine is merged into the section "machine" of Talos' v1alpha1 configuration. Example:
	// {sysctls: {net.core.somaxconn: "4096"}}
	Machine *MachineSection
	// cluster is merged into the section "cluster" of Talos' v1alpha1 configuration. Example:
	// {apiServer: {extraArgs: {event-ttl: 2h}}}
	Cluster *ClusterSection
	// documents are Talos' other configuration documents, each as Talos' own reference has it. A kind and name occurs
	// once. Example: {apiVersion: v1alpha1, kind: UserVolumeConfig, name: data, provisioning: {minSize: 100GiB}}
	Documents []ConfigDocument
	// secretValues fill fields of machine, cluster and documents from Secrets when the configuration is rendered, so
	// that the patch itself holds nothing that has to be kept secret. At most 64.
	SecretValues []SecretValue
}

// PatchTarget chooses machines: approved ones of the cluster that fit everything that is given.
type PatchTarget struct {
	// clusterRef is the cluster whose machines are meant.
	ClusterRef ClusterReference
	// role is controlplane or worker. Empty: both.
	Role MachineRole
	// machineSelector chooses TalosMachines by their labels. Absent: all.
	MachineSelector *metav1.LabelSelector
	// machineNames are names of TalosMachines. Empty: all. At most 1,000.
	MachineNames []string
}

// SecretValue fills one field of a patch from a Secret.
type SecretValue struct {
	// path is the field, as a JSON pointer (RFC 6901) into spec; a document is named by its kind and name. Examples:
	// /machine/env/PROXY_PASSWORD and /documents/RegistryAuthConfig/ghcr.io/password
	Path string
	// secretKeyRef is where the value is.
	SecretKeyRef SecretKeyReference
}

// SecretKeyReference names one key of a Secret in the namespace ichor-system.
type SecretKeyReference struct {
	// name of the Secret in ichor-system.
	Name string
	// key in the Secret's data.
	Key string
}

// TalosConfigPatchStatus is what became of a patch.
type TalosConfigPatchStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	ObservedGeneration int64
	// conditions say how the patch is: Ready, Conflicting.
	Conditions []metav1.Condition
	// machines counts the machines of the target by what became of the patch on them.
	Machines PatchCounts
	// refusals are the machines that can't have the patch, with the reason, at most 32.
	Refusals []PatchRefusal
}

// PatchCounts counts machines.
type PatchCounts struct {
	// matched machines are those that the target chooses.
	Matched int32
	// applied machines run with a configuration that has the patch in it.
	Applied int32
	// pendingReboot machines have the patch and need a reboot before it counts.
	PendingReboot int32
	// refused machines can't have it; they keep their last good configuration.
	Refused int32
}

// PatchRefusal says why a machine can't have a patch.
type PatchRefusal struct {
	// machine is the name of the TalosMachine.
	Machine string
	// path is the faulty field of the patch; empty if it is no single one.
	Path string
	// reason says what is wrong with it.
	Reason string
}
