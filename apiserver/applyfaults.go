// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// untypedApply begins the message of what the library answers when an applied object doesn't fit the schema: a text
// where a number belongs, one key twice in a list. It is the client's fault, and the library calls it the server's.
// Source: k8s.io/apimachinery, pkg/util/managedfields/internal/structuredmerge.go.
const untypedApply = "failed to create typed patch object"

// withApplyFaultsAsBadRequests answers objects that don't fit the schema with a 400, as every other way to write them
// does.
func withApplyFaultsAsBadRequests(next http.Handler) http.Handler {
	prefix := "/apis/" + v1alpha1.GroupName + "/"
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mediaType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
		if req.Method != http.MethodPatch || strings.TrimSpace(mediaType) != string(types.ApplyYAMLPatchType) || !strings.HasPrefix(req.URL.Path, prefix) {
			next.ServeHTTP(w, req)
			return
		}
		held := &heldFault{ResponseWriter: w}
		next.ServeHTTP(held, req)
		held.release()
	})
}

// heldFault passes every answer through but a 500, which it holds until the whole of it is known.
type heldFault struct {
	http.ResponseWriter
	held bool
	body bytes.Buffer
}

// Unwrap is for http.ResponseController.
func (h *heldFault) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// WriteHeader holds a 500.
func (h *heldFault) WriteHeader(code int) {
	if code == http.StatusInternalServerError {
		h.held = true
		return
	}
	h.ResponseWriter.WriteHeader(code)
}

// Write holds the body of a 500.
func (h *heldFault) Write(part []byte) (int, error) {
	if h.held {
		return h.body.Write(part)
	}
	return h.ResponseWriter.Write(part)
}

// release sends what was held, as a 400 if it is the client's fault.
func (h *heldFault) release() {
	if !h.held {
		return
	}
	code, body := http.StatusInternalServerError, h.body.Bytes()
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err == nil && strings.HasPrefix(status.Message, untypedApply) {
		status.Code, status.Reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
		if changed, err := json.Marshal(status); err == nil {
			code, body = http.StatusBadRequest, append(changed, '\n')
			if h.Header().Get("Content-Length") != "" {
				h.Header().Set("Content-Length", strconv.Itoa(len(body)))
			}
		}
	}
	h.ResponseWriter.WriteHeader(code)
	_, _ = h.ResponseWriter.Write(body) // a client that is gone needs no answer
}
