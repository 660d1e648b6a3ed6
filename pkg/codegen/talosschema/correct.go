// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"
)

// corrector holds what the schema says of fields against the types that the decoder fills: in 1.13 four fields have another
// name or form there, and whoever believes the schema can't write what Talos takes.
type corrector struct {
	definitions map[string]any
	done        map[string]bool
}

// correct holds a definition against its type. Fields that the type lacks go. Fields that the definition lacks are made, but
// not in the sections of the v1alpha1 configuration: those that are deprecated are left out there on purpose.
func (c *corrector) correct(name string, of reflect.Type) {
	definition, ok := c.definitions[name].(map[string]any)
	if !ok || c.done[name] {
		return
	}
	c.done[name] = true
	c.object(definition, of, !strings.HasPrefix(name, version+"."))
}

// object corrects what is said of an object, in a definition or in place.
func (c *corrector) object(definition map[string]any, of reflect.Type, all bool) {
	properties, ok := definition["properties"].(map[string]any)
	if !ok {
		return
	}
	fields := fieldsOf(of)
	for property := range properties {
		if _, there := fields[property]; !there {
			delete(properties, property)
		}
	}
	for property, kind := range fields {
		have, there := properties[property].(map[string]any)
		switch {
		case there:
			properties[property] = c.field(have, kind)
		case all:
			properties[property] = describedIn(of, property, schemaOf(kind))
		}
	}
}

// field is what is said of one field, corrected.
func (c *corrector) field(have map[string]any, of reflect.Type) map[string]any {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	said := c.typeOf(have)
	switch {
	case readsItself(of):
		number, text := isNumber(of), takes(of, `"384"`)
		switch {
		case number && text && (said == "string" || said == "integer"):
			return withDescription(map[string]any{"anyOf": []any{map[string]any{"type": "string"}, map[string]any{"type": "integer"}}}, have)
		case !number && isText(of) && (said == "object" || said == "integer"):
			return withDescription(map[string]any{"type": "string"}, have)
		}
	case of.Kind() == reflect.Struct:
		if reference, ok := have["$ref"].(string); ok {
			c.correct(strings.TrimPrefix(reference, "#/$defs/"), of)
		} else {
			c.object(have, of, true)
		}
	case of.Kind() == reflect.Slice && said == "object":
		return withDescription(map[string]any{"type": "array", "items": have}, have)
	case of.Kind() == reflect.Slice:
		if items, ok := have["items"].(map[string]any); ok {
			have["items"] = c.field(items, of.Elem())
		}
	}
	return have
}

// typeOf is the type that a schema says, followed once.
func (c *corrector) typeOf(schema map[string]any) string {
	if reference, ok := schema["$ref"].(string); ok {
		schema, _ = c.definitions[strings.TrimPrefix(reference, "#/$defs/")].(map[string]any)
	}
	text, _ := schema["type"].(string)
	return text
}

func withDescription(schema, from map[string]any) map[string]any {
	if text, ok := from["description"]; ok {
		schema["description"] = text
	}
	return schema
}

// fieldsOf are the fields of a type by their names in YAML.
func fieldsOf(of reflect.Type) map[string]reflect.Type {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	fields := map[string]reflect.Type{}
	for i := range of.NumField() {
		field := of.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		switch {
		case options == "inline":
			for name, kind := range fieldsOf(field.Type) {
				fields[name] = kind
			}
		case name != "" && name != "-":
			fields[name] = field.Type
		}
	}
	return fields
}

var readsYAML = reflect.TypeFor[yaml.Unmarshaler]()

// readsItself tells whether a type has a form of its own in YAML.
func readsItself(of reflect.Type) bool {
	pointer := reflect.PointerTo(of)
	return pointer.Implements(readsYAML) || pointer.Implements(writesYAML) || pointer.Implements(writesText)
}

// isText tells whether a type with a form of its own takes neither an object nor a list.
func isText(of reflect.Type) bool { return !takes(of, "{}") && !takes(of, "[]") }

// isNumber tells whether a type with a form of its own takes numbers, as sizes and modes of files do, and not just any text.
func isNumber(of reflect.Type) bool { return takes(of, "384") && !takes(of, "384 == 384") }

// takes tells whether a type can be read from a text in YAML.
func takes(of reflect.Type, text string) bool {
	return yaml.Unmarshal([]byte(text), reflect.New(of).Interface()) == nil
}
