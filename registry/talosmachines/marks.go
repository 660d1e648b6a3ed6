// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"fmt"
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/storage"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
)

// markField names the watch cache's index of machines by their marks. It is no field selector that clients could use.
const markField = "marks"

// indexed makes the watch cache's index of machines by their marks. The library takes it as a type of client-go, which
// this package has no other use for; the type is inferred from where it goes.
func indexed[Indexers ~map[string]Index, Index ~func(any) ([]string, error)](into **Indexers) {
	*into = &Indexers{storage.FieldIndex(markField): func(obj any) ([]string, error) {
		machine, ok := obj.(*ichor.TalosMachine)
		if !ok {
			return nil, fmt.Errorf("index a TalosMachine: got %T", obj)
		}
		return validation.Marks(machine), nil
	}}
}

// marked selects machines with a mark, by the index. Without a watch cache it selects all, which only takes longer.
func marked(mark string) storage.SelectionPredicate {
	return storage.SelectionPredicate{Label: labels.Everything(), Field: markSelector(mark), GetAttrs: GetAttrs, IndexFields: []string{markField}}
}

// markSelector is a field selector for a field of which an object has several values: the index finds them, and whatever
// it found is right.
type markSelector string

var _ fields.Selector = markSelector("")

// Matches everything that the index found.
func (markSelector) Matches(fields.Fields) bool { return true }

// Empty is false: the index is to be used.
func (markSelector) Empty() bool { return false }

// RequiresExactMatch names the mark to the index.
func (m markSelector) RequiresExactMatch(field string) (string, bool) {
	return string(m), field == markField
}

// Transform changes nothing.
func (m markSelector) Transform(fields.TransformFunc) (fields.Selector, error) { return m, nil }

// Requirements are none that could be said in fields.
func (markSelector) Requirements() fields.Requirements { return nil }

// String is the mark.
func (m markSelector) String() string { return markField + "=" + string(m) }

// DeepCopySelector is the selector itself, which doesn't change.
func (m markSelector) DeepCopySelector() fields.Selector { return m }

// newest remembers the newest of versions of one storage, in which they are numbers that grow.
type newest struct{ version atomic.Uint64 }

// saw remembers a version.
func (n *newest) saw(version string) {
	number, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return
	}
	for {
		known := n.version.Load()
		if number <= known || n.version.CompareAndSwap(known, number) {
			return
		}
	}
}

// orNewer is the given version or a newer one that was seen.
func (n *newest) orNewer(version string) string {
	if number, err := strconv.ParseUint(version, 10, 64); err != nil || number >= n.version.Load() {
		return version
	}
	return strconv.FormatUint(n.version.Load(), 10)
}
