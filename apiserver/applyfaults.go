// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// unfittingApply are how messages begin of what the library answers when an applied object doesn't fit the types that it is
// for: a text where a number belongs, one key twice in a list. It is the client's fault, and the library calls it the
// server's. Source: k8s.io/apimachinery, pkg/util/managedfields/internal/structuredmerge.go, and
// sigs.k8s.io/structured-merge-diff, merge/update.go.
const unfittingApply = `(failed to create typed patch object|failed to merge config|failed to convert new (typed )?object)`

var beginsUnfitting = regexp.MustCompile(`^` + unfittingApply)

// applyFault makes a 400 of an applied object that doesn't fit the schema, as every other way to write it does.
func applyFault(req *http.Request, message string) *apierrors.StatusError {
	mediaType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	if req.Method != http.MethodPatch || strings.TrimSpace(mediaType) != string(types.ApplyYAMLPatchType) || !beginsUnfitting.MatchString(message) {
		return nil
	}
	return apierrors.NewBadRequest(withoutValues(message))
}

// The library's words on one field of an object: its path, what was expected there, and then the value itself. Source:
// sigs.k8s.io/structured-merge-diff, typed/helpers.go and typed/validate.go.
var (
	valueOfField = regexp.MustCompile(`(?s)(: )?(expected [a-z0-9 ()]+), got .*`)
	manyFields   = ": errors:\n"
)

// withoutValues is a message of the library without the values that it repeats, which may be secrets. Of several faulty
// fields, where a value may have lines of its own, only those lines are kept that are about a field.
func withoutValues(message string) string {
	head, lines, many := strings.Cut(message, manyFields)
	if !many {
		return valueOfField.ReplaceAllString(message, "$1$2")
	}
	var kept []string
	for line := range strings.SplitSeq(lines, "\n") {
		if fault := fieldLine.FindString(line); fault != "" {
			kept = append(kept, strings.TrimSpace(fault))
		}
	}
	return head + ": " + strings.Join(kept, "; ")
}

// fieldLine is the line of one faulty field, without its value.
var fieldLine = regexp.MustCompile(`^  \.[^ ]+: (expected [a-z0-9 ()]+|duplicate entries for key [^ ]+|field not declared in schema)`)
