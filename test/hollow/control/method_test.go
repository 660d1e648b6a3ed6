// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"maesh.dev/ichor/test/hollow/control"
)

func TestAWrongMethodOrPathHasItsCode(t *testing.T) {
	t.Parallel()
	r := start(t, 1)
	handler := control.Handler(r.host)
	for _, c := range []struct {
		method, path string
		code         int
		allow        string
	}{
		{http.MethodGet, "/status", http.StatusOK, ""},
		{http.MethodPost, "/status", http.StatusMethodNotAllowed, http.MethodGet},
		{http.MethodGet, "/status/" + r.first(), http.StatusOK, ""},
		{http.MethodPost, "/status/" + r.first(), http.StatusMethodNotAllowed, http.MethodGet},
		{http.MethodGet, "/applies/" + r.first(), http.StatusOK, ""},
		{http.MethodPost, "/certificate/" + r.first(), http.StatusOK, ""},
		{http.MethodGet, "/certificate/" + r.first(), http.StatusMethodNotAllowed, http.MethodPost},
		{http.MethodPost, "/dance/" + r.first(), http.StatusNotFound, ""},
		{http.MethodGet, "/", http.StatusNotFound, ""},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), c.method, c.path, http.NoBody))
			if recorder.Code != c.code || recorder.Header().Get("Allow") != c.allow {
				t.Errorf("got %d, allow %q: %s", recorder.Code, recorder.Header().Get("Allow"), recorder.Body)
			}
		})
	}
}
