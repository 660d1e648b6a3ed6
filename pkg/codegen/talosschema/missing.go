// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	_ "unsafe" // for the list of kinds that the machinery keeps to itself

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	_ "github.com/siderolabs/talos/pkg/machinery/config/configloader" // registers all kinds
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v4"
)

// registeredKinds are the kinds that the machinery's decoder knows.
//
//go:linkname registeredKinds github.com/siderolabs/talos/pkg/machinery/config/internal/registry.Kinds
func registeredKinds() []string

// newDocument makes an empty document of a kind.
//
//go:linkname newDocument github.com/siderolabs/talos/pkg/machinery/config/internal/registry.New
func newDocument(kind, version string) (config.Document, error)

const version = "v1alpha1"

// complete makes the schema agree with the decoder about which kinds there are: the schema of 1.13 has one under another
// name, and lacks one. What the decoder doesn't know goes; what the schema lacks is made from the kind's own type and its
// documentation.
func complete(definitions map[string]any) error {
	kinds := registeredKinds()
	described := map[string]string{version: version + ".Config"}
	for name, definition := range definitions {
		kind := kindOf(definition)
		switch {
		case kind == "":
		case slices.Contains(kinds, kind):
			described[kind] = name
		default:
			delete(definitions, name)
		}
	}
	corrections := corrector{definitions, map[string]bool{}}
	for _, kind := range kinds {
		document, err := newDocument(kind, version)
		if err != nil {
			return fmt.Errorf("make a document of kind %s: %w", kind, err)
		}
		if name, there := described[kind]; there {
			corrections.correct(name, reflect.TypeOf(document))
			continue
		}
		schema := schemaOf(reflect.TypeOf(document))
		properties := schema["properties"].(map[string]any) // a document is a struct
		properties["apiVersion"] = map[string]any{"description": "apiVersion is the API version of the resource.\n", "enum": []any{version}}
		properties["kind"] = map[string]any{"description": "kind is the kind of the resource.\n", "enum": []any{kind}}
		schema["required"] = []any{"apiVersion", "kind"}
		definitions["made."+kind] = schema
	}
	return nil
}

// kindOf is the kind of document that a definition is of; empty for others.
func kindOf(definition any) string {
	fields, _ := definition.(map[string]any)
	properties, _ := fields["properties"].(map[string]any)
	kind, _ := properties["kind"].(map[string]any)
	values, _ := kind["enum"].([]any)
	if len(values) != 1 {
		return ""
	}
	return fmt.Sprint(values[0])
}

var (
	writesYAML = reflect.TypeFor[yaml.Marshaler]()
	writesText = reflect.TypeFor[encoding.TextMarshaler]()
)

// schemaOf describes a type by its fields and their documentation. Types with a form of their own are texts or anything.
func schemaOf(of reflect.Type) map[string]any {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.Interface && readsItself(of) {
		if isText(of) {
			return map[string]any{"type": "string"}
		}
		return map[string]any{}
	}
	switch of.Kind() {
	case reflect.Struct:
		properties := map[string]any{}
		addFields(properties, of)
		return map[string]any{"type": "object", "additionalProperties": false, "description": docOf(of).Description, "properties": properties}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(of.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(of.Elem())}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	default:
		return map[string]any{"type": "integer"}
	}
}

func addFields(properties map[string]any, of reflect.Type) {
	for name, kind := range fieldsOf(of) {
		properties[name] = describedIn(of, name, schemaOf(kind))
	}
}

// describedIn adds the description that a field has in the documentation of its type.
func describedIn(of reflect.Type, name string, schema map[string]any) map[string]any {
	for _, about := range docOf(of).Fields {
		if about.Name == name && about.Description != "" {
			schema["description"] = about.Description + "\n"
		}
	}
	return schema
}

// docOf is the documentation of a type; empty if it has none.
func docOf(of reflect.Type) *encoder.Doc {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if documented, ok := reflect.New(of).Interface().(interface{ Doc() *encoder.Doc }); ok {
		return documented.Doc()
	}
	return &encoder.Doc{}
}
