// SPDX-License-Identifier: Apache-2.0

package talosschema

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

func TestEveryDefinitionExpands(t *testing.T) {
	t.Parallel()
	definitions, _ := parsed()
	for name := range definitions {
		visit(t, name, *Definition(name), func(path string, schema spec.Schema) {
			if schema.Ref.String() != "" {
				t.Errorf("%s still refers to %s", path, schema.Ref.String())
			}
		})
	}
}

func TestOpenAPIForbidsNothingAndKeepsListsWhole(t *testing.T) {
	t.Parallel()
	for _, name := range []string{Machine, Cluster} {
		visit(t, name, OpenAPI(name), func(path string, schema spec.Schema) {
			if schema.Type.Contains("object") && schema.Extensions[preserveUnknownFields] != true {
				t.Errorf("%s forbids fields that it doesn't list", path)
			}
			if schema.Type.Contains("array") && schema.Extensions[listType] != "atomic" {
				t.Errorf("%s is a list of type %v, want atomic", path, schema.Extensions[listType])
			}
			if len(schema.Required) > 0 || schema.Pattern != "" || schema.AdditionalProperties != nil {
				t.Errorf("%s forbids something", path)
			}
		})
	}
}

func TestTalosOwnTextIsThere(t *testing.T) {
	t.Parallel()
	kubelet, ok := OpenAPI(Machine).Properties["kubelet"]
	if !ok || kubelet.Description == "" {
		t.Errorf("machine.kubelet has no description: %+v", kubelet)
	}
	if kinds := Kinds(); !slices.Contains(kinds, "UserVolumeConfig") || !slices.IsSorted(kinds) {
		t.Errorf("want UserVolumeConfig among the sorted kinds, got %v", kinds)
	}
	if rules := Document("ImageVerificationConfig"); rules == nil || rules.Properties["rules"].Items.Schema.Properties["deny"].Description == "" {
		t.Error("a document that the machinery's own schema omits isn't described")
	}
	if Document("NoSuchConfig") != nil || Definition("none") != nil {
		t.Error("there is a schema for a kind that there isn't")
	}
}

func visit(t *testing.T, path string, schema spec.Schema, look func(string, spec.Schema)) {
	t.Helper()
	look(path, schema)
	for name, property := range schema.Properties {
		visit(t, path+"."+name, property, look)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		visit(t, path+"[]", *schema.Items.Schema, look)
	}
}

// The fields of documents are described, whatever kind they are of.
func TestAnyDocumentHasTheFieldsOfAllKinds(t *testing.T) {
	t.Parallel()
	merged := AnyDocument()
	for _, kind := range Kinds() {
		described(t, kind, *Document(kind), merged)
	}
	visit(t, "document", merged, func(path string, schema spec.Schema) {
		if schema.Type.Contains("object") && schema.Extensions[preserveUnknownFields] != true {
			t.Errorf("%s forbids fields that it doesn't list", path)
		}
		if schema.Type.Contains("array") && schema.Extensions[listType] != "atomic" {
			t.Errorf("%s is a list of type %v, want atomic", path, schema.Extensions[listType])
		}
		if len(schema.Required) > 0 || schema.AdditionalProperties != nil || schema.Pattern != "" || len(schema.Enum) > 0 {
			t.Errorf("%s forbids something", path)
		}
	})
	if text := merged.Properties["endpoint"].Description; !strings.Contains(text, "EventSinkConfig: ") || !strings.Contains(text, "TCPProbeConfig: ") {
		t.Errorf("endpoint is said to be %q", text)
	}
}

// described wants each description of a kind's fields to be said of the same field.
func described(t *testing.T, path string, of, merged spec.Schema) {
	t.Helper()
	for name, property := range of.Properties {
		have, there := merged.Properties[name]
		if !there && len(merged.Type) > 0 {
			t.Errorf("%s.%s is not there", path, name)
		}
		if !strings.Contains(have.Description, strings.TrimSpace(property.Description)) {
			t.Errorf("%s.%s is said to be %q, want %q", path, name, have.Description, property.Description)
		}
		described(t, path+"."+name, property, have)
	}
}
