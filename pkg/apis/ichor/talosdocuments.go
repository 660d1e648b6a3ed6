// SPDX-License-Identifier: Apache-2.0

package ichor

// MachineSection is a part of the section "machine" of Talos' v1alpha1 configuration.
type MachineSection struct {
	// Raw is the object's JSON text.
	Raw []byte
}

// ClusterSection is a part of the section "cluster" of Talos' v1alpha1 configuration.
type ClusterSection struct {
	// Raw is the object's JSON text.
	Raw []byte
}

// ConfigDocument is one of Talos' configuration documents besides the v1alpha1 configuration.
type ConfigDocument struct {
	// Raw is the document's JSON text.
	Raw []byte
}
