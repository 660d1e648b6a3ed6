// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"reflect"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
)

// Conflict is a field that two patches set to different values.
type Conflict struct {
	// Document and Path are the field.
	Document string
	Path     string
	// Loser is the patch that is merged first, Winner the one that has the last word.
	Loser, Winner string
}

// Conflicts finds the fields that several of a machine's patches set to different values. It is no error: the one that is
// merged last has the last word. Lists don't conflict, because Talos' merge appends to them.
func Conflicts(patches []*Patch, controlPlane bool) []Conflict {
	type setting struct {
		value any
		by    string
	}
	set := map[string]setting{}
	var conflicts []Conflict
	for _, patch := range patches {
		documents := patch.worker
		if controlPlane {
			documents = patch.controlPlane
		}
		trees := settings(documents)
		for _, name := range sortedDocuments(trees) {
			leaves(trees[name], nil, func(path Path, value any) {
				if slices.ContainsFunc(path, Step.isIndex) || isIdentity(name, path) {
					return
				}
				at := name + "\x00" + path.String()
				if before, there := set[at]; there && !reflect.DeepEqual(before.value, value) {
					conflicts = append(conflicts, Conflict{Document: name, Path: path.String(), Loser: before.by, Winner: patch.Name})
				}
				set[at] = setting{value, patch.Name}
			})
		}
	}
	return conflicts
}

// settings are what documents set; deletions set nothing.
func settings(documents []config.Document) tree {
	var plain []config.Document
	for _, document := range documents {
		if _, deletes := document.(configloader.Selector); !deletes {
			plain = append(plain, document)
		}
	}
	provider, err := container.New(plain...)
	if err != nil {
		return nil
	}
	trees, err := treeOf(provider)
	if err != nil {
		return nil
	}
	return trees
}

// isIdentity tells whether a field only says which document it is in.
func isIdentity(document string, path Path) bool {
	if len(path) != 1 {
		return false
	}
	switch path[0].Key {
	case "apiVersion", "kind", "name":
		return document != MainDocument
	case "version":
		return document == MainDocument
	}
	return false
}
