// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// schema says which names an object may have; nil says nothing.
type schema = *spec.Schema

// heads are the names that tell what a document is; without them it is another one.
var heads = []string{"apiVersion", "kind", "name"}

// walk gets each name in a value wrong, one after the other, calls visit while it is, and mends it.
func walk(value any, of schema, path string, visit func(at string)) {
	if of == nil {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			below, known := of.Properties[name]
			if !known {
				continue
			}
			within := value[name]
			walk(within, &below, path+"."+name, visit)
			if slices.Contains(heads, name) {
				continue
			}
			wrong := name + "X"
			delete(value, name)
			value[wrong] = within
			visit(path + "." + wrong)
			delete(value, wrong)
			value[name] = within
		}
	case []any:
		if of.Items == nil {
			return
		}
		for i := range value {
			walk(value[i], of.Items.Schema, fmt.Sprintf("%s[%d]", path, i), visit)
		}
	}
}
