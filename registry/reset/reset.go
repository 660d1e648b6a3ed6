// SPDX-License-Identifier: Apache-2.0

// Package reset holds what the strategies of all kinds do to keep each door of an object to its own fields: the sets of
// reset fields that server-side apply is told of, and the rule for finalizers.
package reset

import (
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Fields is the set of the dotted paths, for every served version.
func Fields(paths ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	set := fieldpath.NewSet()
	for _, path := range paths {
		var parts []any
		for part := range strings.SplitSeq(path, ".") {
			parts = append(parts, part)
		}
		set.Insert(fieldpath.MakePathOrDie(parts...))
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(v1alpha1.SchemeGroupVersion.String()): set,
	}
}

// Finalizers returns the wanted finalizers with Ichor's own exactly as they were: those change only through the
// subresource "finalize". Others, such as the garbage collector's, are their owners' business.
func Finalizers(wanted, was []string) []string {
	own := func(name string) bool { return strings.HasPrefix(name, ichor.GroupName+"/") }
	var out []string
	for _, name := range was {
		if own(name) || slices.Contains(wanted, name) {
			out = append(out, name)
		}
	}
	for _, name := range wanted {
		if !own(name) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
