// SPDX-License-Identifier: Apache-2.0

// Package reset holds what the strategies of all kinds do to keep each door of an object to its own fields: the sets of
// reset fields that server-side apply is told of, and the rule for finalizers.
package reset

import (
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/progress"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Status is Fields for the doors to a status: with them go the conditions that the server writes.
func Status(paths ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	sets := Fields(paths...)
	for _, set := range sets {
		for _, condition := range progress.Types() {
			set.Insert(fieldpath.MakePathOrDie("status", "conditions", fieldpath.KeyByFields("type", condition)))
		}
	}
	return sets
}

// Fields is the set of the dotted paths, for every served version.
func Fields(paths ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	set := fieldpath.NewSet()
	for _, path := range paths {
		set.Insert(fieldpath.MakePathOrDie(split(path)...))
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(v1alpha1.SchemeGroupVersion.String()): set,
	}
}

// AllBut keeps what is owned of the dotted paths, for every served version, and resets everything else. It is for doors to
// a part of the spec: what else there is in a spec needn't be listed. Without paths, nothing is kept.
func AllBut(paths ...string) map[fieldpath.APIVersion]fieldpath.Filter {
	filter := fieldpath.NewExcludeSetFilter(fieldpath.NewSet(
		fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("status")))
	if len(paths) > 0 {
		var matchers []*fieldpath.SetMatcher
		for _, path := range paths {
			matchers = append(matchers, fieldpath.MakePrefixMatcherOrDie(split(path)...))
		}
		filter = fieldpath.NewIncludeMatcherFilter(matchers...)
	}
	return map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(v1alpha1.SchemeGroupVersion.String()): filter}
}

func split(path string) []any {
	var parts []any
	for part := range strings.SplitSeq(path, ".") {
		parts = append(parts, part)
	}
	return parts
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
