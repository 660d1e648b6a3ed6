// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosMachineConfig is the configuration that a machine is to have, as it is rendered from what people decided, with every
// secret replaced. The subresource talosmachines/config answers with it; nothing stores it.
type TalosMachineConfig struct {
	metav1.TypeMeta `json:",inline"`
	// metadata has the machine's name and UID.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// text is the configuration in YAML, as Talos writes it, secrets replaced by asterisks.
	Text string `json:"text"`
	// patches are the TalosConfigPatches in it, in the order in which they were merged.
	// +optional
	// +listType=map
	// +listMapKey=name
	Patches []ConfigInput `json:"patches,omitempty"`
	// provenance says who set each field; only there if it is asked for with ?provenance=true.
	// +optional
	// +listType=atomic
	Provenance []FieldProvenance `json:"provenance,omitempty"`
	// warnings are what is odd about the configuration though it works.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}

// FieldProvenance says who set a field of a configuration.
type FieldProvenance struct {
	// document that the field is in: v1alpha1, or the kind and name of another one. Example: UserVolumeConfig/data
	Document string `json:"document"`
	// path of the field in the document. Example: machine.sysctls["net.core.somaxconn"]
	Path string `json:"path"`
	// setBy is base (Talos' generator with the cluster's settings), patch, or approval.
	SetBy string `json:"setBy"`
	// patch is the name of the TalosConfigPatch, for patch.
	// +optional
	Patch string `json:"patch,omitempty"`
	// overrode are the names of the patches that had set it to something else before.
	// +optional
	// +listType=atomic
	Overrode []string `json:"overrode,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosMachineDrift is where a machine's running configuration differs from the one it is to have. The subresource
// talosmachines/drift answers with it.
type TalosMachineDrift struct {
	metav1.TypeMeta `json:",inline"`
	// metadata has the machine's name and UID.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// state is InSync, Applying, PendingReboot, Drifted or Unknown.
	State string `json:"state"`
	// message says it for people.
	// +optional
	Message string `json:"message,omitempty"`
	// count is in how many places it differs.
	// +optional
	Count int32 `json:"count,omitempty"`
	// items are the places, secrets left out, at most 64.
	// +optional
	// +listType=map
	// +listMapKey=document
	// +listMapKey=path
	Items []ConfigDrift `json:"items,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:conversion-gen:explicit-from=net/url.Values
// +k8s:openapi-gen=false

// TalosMachineConfigOptions are the query parameters of talosmachines/config.
type TalosMachineConfigOptions struct {
	metav1.TypeMeta `json:",inline"`
	// provenance asks for who set each field. Defaults to false.
	// +optional
	Provenance bool `json:"provenance,omitempty"`
}
