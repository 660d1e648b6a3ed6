// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
)

// ProvenanceKind says what kind of thing set a field.
type ProvenanceKind string

const (
	// ProvenanceBase is Talos' generator with the cluster's settings and secrets.
	ProvenanceBase ProvenanceKind = "base"
	// ProvenancePatch is a TalosConfigPatch.
	ProvenancePatch ProvenanceKind = "patch"
	// ProvenanceApproval is what was decided when the machine was approved.
	ProvenanceApproval ProvenanceKind = "approval"
)

// Origin says who set a field of a configuration, and who set it before.
type Origin struct {
	// Document and Path are the field, which has nothing below it.
	Document string
	Path     string
	// Kind and Patch say who set it; Patch is the name of the TalosConfigPatch, empty for other kinds.
	Kind  ProvenanceKind
	Patch string
	// Overrode are the patches that had set it to something else, in their order.
	Overrode []string
}

// Provenance tells who set each field of the configuration that Render gives, by document and path. Elements of lists
// count one by one.
func Provenance(in Inputs) ([]Origin, error) {
	origins := map[string]map[string]*Origin{}
	before := map[string]map[string]any{}
	_, err := render(in, func(by source, provider coreconfig.Provider) error {
		trees, err := treeOf(provider)
		if err != nil {
			return err
		}
		now := map[string]map[string]any{}
		for document, value := range trees {
			now[document] = map[string]any{}
			if origins[document] == nil {
				origins[document] = map[string]*Origin{}
			}
			leaves(value, nil, func(path Path, value any) {
				at := path.String()
				now[document][at] = value
				was, there := before[document][at]
				if there && reflect.DeepEqual(was, value) {
					return
				}
				next := &Origin{Document: document, Path: at, Kind: by.kind, Patch: by.patch}
				if previous := origins[document][at]; there && previous != nil {
					next.Overrode = previous.Overrode
					if previous.Kind == ProvenancePatch {
						next.Overrode = append(next.Overrode[:len(next.Overrode):len(next.Overrode)], previous.Patch)
					}
				}
				origins[document][at] = next
			})
		}
		before = now
		return nil
	})
	if err != nil {
		return nil, err
	}
	return inOrder(origins, before), nil
}

// inOrder are the origins of the fields that are there in the end.
func inOrder(origins map[string]map[string]*Origin, last map[string]map[string]any) []Origin {
	var all []Origin
	for _, document := range sortedDocuments(last) {
		for _, path := range slices.Sorted(maps.Keys(last[document])) {
			all = append(all, *origins[document][path])
		}
	}
	return all
}

// sortedDocuments are documents' names, the main document first.
func sortedDocuments[V any](documents map[string]V) []string {
	return slices.SortedFunc(maps.Keys(documents), func(a, b string) int {
		if (a == MainDocument) != (b == MainDocument) {
			if a == MainDocument {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
}
