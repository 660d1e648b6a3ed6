// SPDX-License-Identifier: Apache-2.0

package talosschema

import (
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	preserveUnknownFields = "x-kubernetes-preserve-unknown-fields"
	listType              = "x-kubernetes-list-type"
)

// OpenAPI is a definition as Kubernetes' OpenAPI has it: it describes fields and says how they merge, and forbids
// nothing, because the strategy judges. Maps merge by their keys; lists are replaced whole, as Talos' lists have no keys.
func OpenAPI(name string) spec.Schema {
	schema := Definition(name)
	if schema == nil {
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}, VendorExtensible: preserving()}
	}
	return lenient(*schema)
}

func preserving() spec.VendorExtensible {
	return spec.VendorExtensible{Extensions: spec.Extensions{preserveUnknownFields: true}}
}

func lenient(schema spec.Schema) spec.Schema {
	out := spec.Schema{SchemaProps: spec.SchemaProps{Description: schema.Description, Type: schema.Type, Enum: schema.Enum}}
	switch {
	case len(schema.OneOf) > 0 || len(schema.AnyOf) > 0:
		// A string or a list, for instance: there is no type that both have.
		out.Type, out.VendorExtensible = nil, preserving()
	case schema.Type.Contains("array"):
		items := spec.Schema{}
		if schema.Items != nil && schema.Items.Schema != nil {
			items = lenient(*schema.Items.Schema)
		}
		out.Items = &spec.SchemaOrArray{Schema: &items}
		out.VendorExtensible = spec.VendorExtensible{Extensions: spec.Extensions{listType: "atomic"}}
	case schema.Type.Contains("object"):
		out.Properties = make(map[string]spec.Schema, len(schema.Properties))
		for name, property := range schema.Properties {
			out.Properties[name] = lenient(property)
		}
		out.VendorExtensible = preserving()
	case len(schema.Type) == 0 && len(schema.Enum) > 0:
		out.Type = typeOf(schema.Enum)
	}
	return out
}

// typeOf is the type of an enumeration that names none.
func typeOf(values []any) spec.StringOrArray {
	for _, value := range values {
		if _, ok := value.(string); !ok {
			return nil
		}
	}
	return spec.StringOrArray{"string"}
}
