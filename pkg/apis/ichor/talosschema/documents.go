// SPDX-License-Identifier: Apache-2.0

package talosschema

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// AnyDocument describes the fields that documents of any kind have, as OpenAPI does: OpenAPI has no way to say that the
// fields depend on the kind, and whoever asks for the meaning of one wants an answer. A field that kinds describe
// differently has each description, with the kinds that it is of; one that has different types has none.
func AnyDocument() spec.Schema {
	all := map[string]spec.Schema{}
	for _, kind := range Kinds() {
		all[kind] = lenient(*Document(kind))
	}
	merged := mergeKinds(all)
	merged.Description = ""
	return merged
}

// mergeKinds makes one schema of those that kinds have for the same field.
func mergeKinds(byKind map[string]spec.Schema) spec.Schema {
	kinds := slices.Sorted(maps.Keys(byKind))
	first := byKind[kinds[0]]
	merged := spec.Schema{SchemaProps: spec.SchemaProps{Description: describeKinds(byKind)}}
	for _, kind := range kinds[1:] {
		if !slices.Equal(byKind[kind].Type, first.Type) {
			merged.VendorExtensible = preserving()
			return merged
		}
	}
	merged.Type, merged.VendorExtensible = first.Type, first.VendorExtensible
	if first.Items != nil {
		items := map[string]spec.Schema{}
		for kind, schema := range byKind {
			items[kind] = *schema.Items.Schema
		}
		schema := mergeKinds(items)
		merged.Items = &spec.SchemaOrArray{Schema: &schema}
	}
	fields := map[string]map[string]spec.Schema{}
	for kind, schema := range byKind {
		for name, property := range schema.Properties {
			if fields[name] == nil {
				fields[name] = map[string]spec.Schema{}
			}
			fields[name][kind] = property
		}
	}
	if len(fields) > 0 {
		merged.Properties = map[string]spec.Schema{}
	}
	for name, each := range fields {
		merged.Properties[name] = mergeKinds(each)
	}
	return merged
}

// describeKinds is the description that all kinds have, or each with the kinds that have it.
func describeKinds(byKind map[string]spec.Schema) string {
	sharing := map[string][]string{}
	var texts []string
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		text := strings.TrimSpace(byKind[kind].Description)
		if text == "" {
			continue
		}
		if sharing[text] == nil {
			texts = append(texts, text)
		}
		sharing[text] = append(sharing[text], kind)
	}
	if len(texts) < 2 {
		return strings.Join(texts, "")
	}
	for i, text := range texts {
		texts[i] = strings.Join(sharing[text], ", ") + ": " + text
	}
	return strings.Join(texts, "\n\n")
}
