// SPDX-License-Identifier: Apache-2.0

package ichor

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosMachineConfig is the configuration that a machine is to have, with every secret replaced.
type TalosMachineConfig struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// text is the configuration in YAML.
	Text string
	// patches are the TalosConfigPatches in it.
	Patches []ConfigInput
	// provenance says who set each field.
	Provenance []FieldProvenance
	// warnings are what is odd about the configuration.
	Warnings []string
}

// FieldProvenance says who set a field of a configuration.
type FieldProvenance struct {
	// document that the field is in.
	Document string
	// path of the field in the document.
	Path string
	// setBy is base, patch or approval.
	SetBy string
	// patch is the name of the TalosConfigPatch.
	Patch string
	// overrode are the patches that had set it to something else.
	Overrode []string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosMachineDrift is where a machine's running configuration differs from the one it is to have.
type TalosMachineDrift struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// state is InSync, Applying, PendingReboot, Drifted or Unknown.
	State string
	// message says it for people.
	Message string
	// count is in how many places it differs.
	Count int32
	// items are the places.
	Items []ConfigDrift
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosMachineConfigOptions are the query parameters of talosmachines/config.
type TalosMachineConfigOptions struct {
	metav1.TypeMeta
	// provenance asks for who set each field.
	Provenance bool
}
