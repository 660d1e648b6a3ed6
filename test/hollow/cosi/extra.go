// SPDX-License-Identifier: Apache-2.0

package cosi

import (
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"google.golang.org/protobuf/encoding/protowire"

	"maesh.dev/ichor/test/hollow/profile"
)

// Extra is a resource of a type that the machinery of 1.13 doesn't know. All its fields are texts, and empty ones are left
// out, as everywhere in Talos' protocol.
type Extra struct {
	md   resource.Metadata
	kind profile.ExtraType
	spec *ExtraSpec
}

var _ meta.ResourceWithRD = (*Extra)(nil)

// ExtraSpec is what an Extra holds.
type ExtraSpec struct {
	names  []string
	values map[string]string
}

// NewExtra makes the one resource of a type.
func NewExtra(kind profile.ExtraType, values map[string]string) *Extra {
	return &Extra{
		md:   resource.NewMetadata(kind.Namespace, kind.Type, kind.ID, resource.VersionUndefined),
		kind: kind, spec: &ExtraSpec{names: kind.Fields, values: values},
	}
}

// Metadata implements resource.Resource.
func (e *Extra) Metadata() *resource.Metadata { return &e.md }

// Spec implements resource.Resource.
func (e *Extra) Spec() any { return e.spec }

// DeepCopy implements resource.Resource; a spec never changes.
func (e *Extra) DeepCopy() resource.Resource {
	return &Extra{md: e.md.Copy(), kind: e.kind, spec: e.spec}
}

// ResourceDefinition implements meta.ResourceDefinitionProvider.
func (e *Extra) ResourceDefinition() meta.ResourceDefinitionSpec {
	definition := meta.ResourceDefinitionSpec{Type: e.kind.Type, DefaultNamespace: e.kind.Namespace}
	if e.kind.Sensitive {
		definition.Sensitivity = meta.Sensitive
	}
	return definition
}

// MarshalProto numbers the fields from 1 in their order.
func (s *ExtraSpec) MarshalProto() ([]byte, error) {
	var out []byte
	for i, name := range s.names {
		if value := s.values[name]; value != "" {
			out = protowire.AppendTag(out, protowire.Number(i+1), protowire.BytesType)
			out = protowire.AppendString(out, value)
		}
	}
	return out, nil
}

// MarshalYAML gives the fields that have a value.
func (s *ExtraSpec) MarshalYAML() (any, error) {
	out := map[string]string{}
	for _, name := range s.names {
		if value := s.values[name]; value != "" {
			out[name] = value
		}
	}
	return out, nil
}

// String tells the values for logs of the COSI runtime.
func (s *ExtraSpec) String() string {
	var words []string
	for _, name := range s.names {
		words = append(words, name+"="+s.values[name])
	}
	return strings.Join(words, " ")
}
