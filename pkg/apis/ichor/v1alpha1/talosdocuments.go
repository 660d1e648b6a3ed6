// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"maesh.dev/ichor/pkg/apis/ichor/talosschema"
)

// MachineSection is a part of the section "machine" of Talos' v1alpha1 configuration, with Talos' field names. Its shape
// is Talos' own; it is decoded strictly when a patch is written.
type MachineSection struct {
	// Raw is the object's JSON text.
	Raw []byte `json:"-"`
}

// MarshalJSON writes the section as it was read; an empty one is written as {}.
func (s MachineSection) MarshalJSON() ([]byte, error) { return JSONObject(s).MarshalJSON() }

// UnmarshalJSON takes any JSON object.
func (s *MachineSection) UnmarshalJSON(in []byte) error {
	return (*JSONObject)(s).UnmarshalJSON(in)
}

// OpenAPIDefinition describes the section in Talos' words.
func (MachineSection) OpenAPIDefinition() common.OpenAPIDefinition {
	return common.OpenAPIDefinition{Schema: talosschema.OpenAPI(talosschema.Machine)}
}

// ClusterSection is a part of the section "cluster" of Talos' v1alpha1 configuration, with Talos' field names. Its shape
// is Talos' own; it is decoded strictly when a patch is written.
type ClusterSection struct {
	// Raw is the object's JSON text.
	Raw []byte `json:"-"`
}

// MarshalJSON writes the section as it was read; an empty one is written as {}.
func (s ClusterSection) MarshalJSON() ([]byte, error) { return JSONObject(s).MarshalJSON() }

// UnmarshalJSON takes any JSON object.
func (s *ClusterSection) UnmarshalJSON(in []byte) error {
	return (*JSONObject)(s).UnmarshalJSON(in)
}

// OpenAPIDefinition describes the section in Talos' words.
func (ClusterSection) OpenAPIDefinition() common.OpenAPIDefinition {
	return common.OpenAPIDefinition{Schema: talosschema.OpenAPI(talosschema.Cluster)}
}

// ConfigDocument is one of Talos' configuration documents besides the v1alpha1 configuration, with the fields that its
// kind has in Talos' reference. It is decoded strictly when a patch is written.
type ConfigDocument struct {
	// Raw is the document's JSON text.
	Raw []byte `json:"-"`
}

// MarshalJSON writes the document as it was read; an empty one is written as {}.
func (d ConfigDocument) MarshalJSON() ([]byte, error) { return JSONObject(d).MarshalJSON() }

// UnmarshalJSON takes any JSON object.
func (d *ConfigDocument) UnmarshalJSON(in []byte) error {
	return (*JSONObject)(d).UnmarshalJSON(in)
}

// OpenAPIDefinition describes the fields of all kinds in Talos' words; kind and name tell documents apart in a list, and a
// document without a name has the empty one.
func (ConfigDocument) OpenAPIDefinition() common.OpenAPIDefinition {
	text := func(description string) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Description: description, Type: []string{"string"}}}
	}
	name := text("name of the document, for kinds of which there can be several.")
	name.Default = ""
	schema := talosschema.AnyDocument()
	schema.Description = "One of Talos' configuration documents, with the fields that its kind has in Talos' reference; those of all kinds are listed."
	schema.Required = []string{"apiVersion", "kind"}
	schema.Properties["apiVersion"] = text("apiVersion of the document, so far always v1alpha1.")
	schema.Properties["kind"] = text("kind of the document, for instance UserVolumeConfig.")
	schema.Properties["name"] = name
	return common.OpenAPIDefinition{Schema: schema}
}
