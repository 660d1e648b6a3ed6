// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// untypedApply begins the message of what the library answers when an applied object doesn't fit the schema: a text
// where a number belongs, one key twice in a list. It is the client's fault, and the library calls it the server's.
// Source: k8s.io/apimachinery, pkg/util/managedfields/internal/structuredmerge.go.
const untypedApply = "failed to create typed patch object"

// applyFault makes a 400 of an applied object that doesn't fit the schema, as every other way to write it does.
func applyFault(req *http.Request, message string) *apierrors.StatusError {
	mediaType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	if req.Method != http.MethodPatch || strings.TrimSpace(mediaType) != string(types.ApplyYAMLPatchType) || !strings.HasPrefix(message, untypedApply) {
		return nil
	}
	return apierrors.NewBadRequest(message)
}
