// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// withFaultsExplained replaces answers that the library gives as a 500 though they are no fault of this server: what
// the client did wrong (applyFault), and what etcd refuses or can't do (storageFault). A watch is passed through: its
// answer is a stream, and begins with a 200.
func withFaultsExplained(next http.Handler) http.Handler {
	prefix := "/apis/" + v1alpha1.GroupName + "/"
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, known := request.RequestInfoFrom(req.Context())
		if !strings.HasPrefix(req.URL.Path, prefix) || known && info.Verb == "watch" {
			next.ServeHTTP(w, req)
			return
		}
		held := &heldFault{ResponseWriter: w}
		// An answer may also be a log that is followed: what is written of it is flushed.
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(held), req)
		held.release(req)
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

// release sends what was held, or the better answer.
func (h *heldFault) release(req *http.Request) {
	if !h.held {
		return
	}
	var status metav1.Status
	if err := runtime.DecodeInto(Codecs.UniversalDeserializer(), h.body.Bytes(), &status); err == nil {
		if better := explain(req, status.Message); better != nil {
			h.Header().Del("Content-Length")
			responsewriters.ErrorNegotiated(better, Codecs, v1alpha1.SchemeGroupVersion, h.ResponseWriter, req)
			return
		}
	}
	h.ResponseWriter.WriteHeader(http.StatusInternalServerError)
	_, _ = h.ResponseWriter.Write(h.body.Bytes()) // a client that is gone needs no answer
}

// explain returns the better answer to a request that the library answers with this message, nil if there is none.
func explain(req *http.Request, message string) *apierrors.StatusError {
	if better := applyFault(req, message); better != nil {
		return better
	}
	return storageFault(req, message)
}
