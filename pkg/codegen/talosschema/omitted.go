// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"reflect"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"github.com/siderolabs/talos/pkg/machinery/config/types/security"
)

// omitted are documents that the machinery decodes, and that the schema it ships lacks.
var omitted = map[string]any{
	security.ImageVerificationConfigKind: security.ImageVerificationConfigV1Alpha1{},
}

// addOmitted describes the omitted documents, in the schema's way, by their Go types and the texts that these carry.
func addOmitted(definitions map[string]any) error {
	for kind, document := range omitted {
		of := reflect.TypeOf(document)
		if definitions[definition(of)] != nil {
			return fmt.Errorf("the machinery's schema has %s by now: take it out of the omitted ones", kind)
		}
		if err := describe(definitions, of, kind); err != nil {
			return err
		}
	}
	return nil
}

func definition(of reflect.Type) string { return path.Base(of.PkgPath()) + "." + of.Name() }

// describe adds a struct, and those that it holds; the kind is empty if it is no document.
func describe(definitions map[string]any, of reflect.Type, kind string) error {
	documented, ok := reflect.Zero(of).Interface().(interface{ Doc() *encoder.Doc })
	if !ok {
		return fmt.Errorf("type %s carries no documentation", of)
	}
	doc := documented.Doc()
	texts := map[string]string{}
	for _, field := range doc.Fields {
		texts[field.Name] = field.Description + "\n"
	}
	properties := map[string]any{}
	schema := map[string]any{"additionalProperties": false, "description": doc.Description, "properties": properties, "type": "object"}
	for i := range of.NumField() {
		field := of.Field(i)
		if field.Type == reflect.TypeFor[meta.Meta]() {
			properties["apiVersion"] = map[string]any{"description": "apiVersion is the API version of the resource.\n", "enum": []string{"v1alpha1"}}
			properties["kind"] = map[string]any{"description": "kind is the kind of the resource.\n", "enum": []string{kind}}
			schema["required"] = []string{"apiVersion", "kind"}
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		property, err := value(definitions, field.Type)
		if err != nil {
			return fmt.Errorf("%s.%s: %w", of, name, err)
		}
		property["description"] = texts[name]
		properties[name] = property
	}
	definitions[definition(of)] = schema
	return nil
}

func value(definitions map[string]any, of reflect.Type) (map[string]any, error) {
	switch of.Kind() {
	case reflect.Pointer:
		return value(definitions, of.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}, nil
	case reflect.Bool:
		return map[string]any{"type": "boolean"}, nil
	case reflect.Slice:
		items, err := value(definitions, of.Elem())
		return map[string]any{"type": "array", "items": items}, err
	case reflect.Struct:
		return map[string]any{"$ref": "#/$defs/" + definition(of)}, describe(definitions, of, "")
	default:
		return nil, fmt.Errorf("there is no schema for a value of type %s", of)
	}
}
