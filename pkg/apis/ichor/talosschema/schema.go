// SPDX-License-Identifier: Apache-2.0

// Package talosschema holds the schema of Talos' machine configuration as the machinery module ships it: for the API's
// documentation, and to tell where a faulty document is wrong. Whether one is faulty is decided by the machinery's own
// decoder, never by the schema.
//
// zz_generated.schema.json is made from Talos' config.schema.json, which is under the Mozilla Public License 2.0.
package talosschema

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

//go:embed zz_generated.schema.json
var text []byte

// The definitions of the two sections of Talos' v1alpha1 configuration.
const (
	Machine = "v1alpha1.MachineConfig"
	Cluster = "v1alpha1.ClusterConfig"
)

// parsed are the definitions by name, with references between them, and the names by kind of document.
var parsed = sync.OnceValues(func() (map[string]*spec.Schema, map[string]string) {
	definitions := map[string]*spec.Schema{}
	if err := json.Unmarshal(text, &definitions); err != nil {
		panic(fmt.Sprintf("parse the embedded schema of Talos' configuration: %v", err)) // a test reads it
	}
	kinds := map[string]string{}
	for name, definition := range definitions {
		if kind, ok := definition.Properties["kind"]; ok && len(kind.Enum) == 1 {
			kinds[fmt.Sprint(kind.Enum[0])] = name
		}
	}
	return definitions, kinds
})

// Kinds are the kinds of documents that there are besides the v1alpha1 configuration, sorted.
func Kinds() []string {
	_, kinds := parsed()
	return slices.Sorted(maps.Keys(kinds))
}

// Document is the strict schema of a kind of document, without references; nil if there is no such kind.
func Document(kind string) *spec.Schema {
	_, kinds := parsed()
	name, ok := kinds[kind]
	if !ok {
		return nil
	}
	return Definition(name)
}

// Definition is a strict schema by its name, without references; nil if there is none.
func Definition(name string) *spec.Schema {
	definitions, _ := parsed()
	definition, ok := definitions[name]
	if !ok {
		return nil
	}
	out := expand(definitions, *definition)
	return &out
}

// expand copies a schema with what it refers to in place. Talos' schema doesn't refer to itself.
func expand(definitions map[string]*spec.Schema, schema spec.Schema) spec.Schema {
	if ref := schema.Ref.String(); ref != "" {
		target := expand(definitions, *definitions[strings.TrimPrefix(ref, "#/$defs/")])
		if schema.Description != "" {
			target.Description = schema.Description
		}
		return target
	}
	schema.Properties = expandAll(definitions, schema.Properties)
	schema.PatternProperties = expandAll(definitions, schema.PatternProperties)
	if schema.Items != nil && schema.Items.Schema != nil {
		items := expand(definitions, *schema.Items.Schema)
		schema.Items = &spec.SchemaOrArray{Schema: &items}
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		values := expand(definitions, *schema.AdditionalProperties.Schema)
		schema.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &values}
	}
	return schema
}

func expandAll(definitions map[string]*spec.Schema, schemas map[string]spec.Schema) map[string]spec.Schema {
	if schemas == nil {
		return nil
	}
	out := make(map[string]spec.Schema, len(schemas))
	for name, schema := range schemas {
		out[name] = expand(definitions, schema)
	}
	return out
}
