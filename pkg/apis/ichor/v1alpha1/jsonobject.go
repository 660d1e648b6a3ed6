// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"
	"encoding/json"
	"errors"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// JSONObject is a JSON object whose fields Ichor doesn't define, such as the values of a Helm chart. Clients see a
// structured object, never a string of YAML. The schema preserves unknown fields, so that server-side apply merges it
// field by field.
type JSONObject struct {
	// Raw is the object's JSON text; empty when there is none.
	Raw []byte `json:"-"`
}

// MarshalJSON writes the object as it was read; an empty one is written as {}.
func (o JSONObject) MarshalJSON() ([]byte, error) {
	if len(o.Raw) == 0 {
		return []byte("{}"), nil
	}
	return o.Raw, nil
}

// UnmarshalJSON takes any JSON object; null is an empty one. Anything else is an error that doesn't repeat it.
func (o *JSONObject) UnmarshalJSON(in []byte) error {
	in = bytes.TrimSpace(in)
	if bytes.Equal(in, []byte("null")) {
		o.Raw = nil
		return nil
	}
	switch {
	case len(in) > 0 && in[0] == '[' && json.Valid(in):
		// What Talos takes for single documents, and people have at hand.
		return errors.New("expected a JSON object, got a list; a JSON patch (RFC 6902) isn't taken: its paths can't tell the documents of Talos' configuration apart, so write the fields as they are to be")
	case len(in) == 0 || in[0] != '{' || !json.Valid(in):
		// What came is not repeated: it may be a secret.
		return errors.New("expected a JSON object")
	}
	o.Raw = append([]byte(nil), in...)
	return nil
}

// OpenAPIDefinition describes an object with any fields.
func (JSONObject) OpenAPIDefinition() common.OpenAPIDefinition {
	return common.OpenAPIDefinition{
		Schema: spec.Schema{
			SchemaProps: spec.SchemaProps{
				Description: "An object with any fields.",
				Type:        []string{"object"},
			},
			VendorExtensible: spec.VendorExtensible{
				Extensions: spec.Extensions{"x-kubernetes-preserve-unknown-fields": true},
			},
		},
	}
}
