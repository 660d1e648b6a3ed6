// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/merge"
)

// apply merges a patch into documents by Talos' own rules: lists are appended, objects merged, plain values replaced. The
// documents that went in are changed. To delete a document that isn't there is a warning; to delete a field
// that isn't there is an error, because something else than meant would run.
func (p *Patch) apply(documents []config.Document, controlPlane bool) (merged []config.Document, warnings []string, err error) {
	ours := p.worker
	if controlPlane {
		ours = p.controlPlane
	}
	documents = slices.Clone(documents)
	for _, mine := range ours {
		name := DocumentName(mine)
		at := slices.IndexFunc(documents, func(document config.Document) bool { return DocumentName(document) == name })
		deletes, selector := mine.(configloader.Selector)
		switch {
		case selector && at < 0:
			warnings = append(warnings, fmt.Sprintf("patch %s deletes document %s, which isn't there", p.Name, name))
		case selector:
			switch err := deletes.ApplyTo(documents[at]); {
			case errors.Is(err, configloader.ErrZeroedDocument):
				documents = slices.Delete(documents, at, at+1)
			case errors.Is(err, configloader.ErrLookupFailed):
				return nil, nil, &PatchError{Patch: p.Name, Path: selectorPath(deletes), Reason: "deletes what isn't there"}
			case err != nil:
				return nil, nil, &PatchError{Patch: p.Name, Path: selectorPath(deletes), Reason: "can't be deleted: " + withoutValues(err)}
			}
		case at < 0:
			documents = append(documents, mine.Clone())
		default:
			// The patch's own values end up in the result, where a later patch would change them.
			if err := merge.Merge(documents[at], mine.Clone()); err != nil {
				return nil, nil, &PatchError{Patch: p.Name, Path: partPath(name), Reason: "can't be merged: " + withoutValues(err)}
			}
		}
	}
	return documents, warnings, nil
}

// selectorPath is the field of the patch that a deletion stands in.
func selectorPath(selector configloader.Selector) string {
	inside, ok := selector.(interface{ PathAsString() string })
	if !ok || inside.PathAsString() == "" {
		return partPath(DocumentName(selector))
	}
	if name := DocumentName(selector); name != MainDocument {
		return partPath(name) + "." + inside.PathAsString()
	}
	return "spec." + inside.PathAsString()
}

// partPath is the place of a document in a patch.
func partPath(document string) string {
	if document == MainDocument {
		return "spec"
	}
	kind, name, _ := strings.Cut(document, "/")
	return fmt.Sprintf("spec.documents[kind=%s,name=%s]", kind, name)
}

// assemble puts documents together. The patch at fault is the one that was merged last.
func assemble(documents []config.Document) (coreconfig.Provider, error) {
	provider, err := container.New(documents...)
	if err != nil {
		return nil, fmt.Errorf("the documents don't go together: %s", withoutValues(err))
	}
	return provider, nil
}
