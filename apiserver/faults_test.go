// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/util/flushwriter"
)

func TestA500IsExplainedWhereItIsNotTheServersFault(t *testing.T) {
	t.Parallel()
	const path, apply = "/apis/ichor.maesh.dev/v1alpha1/taloscluster/prod", "application/apply-patch+yaml"
	tests := map[string]struct {
		method, path, content, verb, message string
		code                                 int
		reason                               metav1.StatusReason
		says                                 string
	}{
		"etcd is full": {method: "PUT", message: "store the password: etcdserver: mvcc: database space exceeded", code: 503, reason: "ServiceUnavailable", says: "nothing was changed"},
		"an object is too large for etcd": {
			method: "POST", message: "etcdserver: request is too large", code: 413, reason: "RequestEntityTooLarge", says: "1.5 MiB",
		},
		"etcd is overloaded":                {method: "POST", message: "etcdserver: too many requests", code: 503, reason: "ServiceUnavailable", says: "Try again later"},
		"etcd's members differ":             {method: "GET", message: "etcdserver: corrupt cluster", code: 503, reason: "ServiceUnavailable", says: "CORRUPT"},
		"no leader, for a writer":           {method: "PATCH", message: "etcdserver: leader changed", code: 503, reason: "ServiceUnavailable", says: "isn't known"},
		"no leader, for a reader":           {method: "GET", message: "etcdserver: no leader", code: 503, reason: "ServiceUnavailable", says: "; try again ("},
		"a connection that broke":           {method: "DELETE", message: "rpc error: code = Unavailable desc = error reading from server: EOF", code: 503, reason: "ServiceUnavailable", says: "isn't known"},
		"another gRPC error":                {method: "DELETE", message: "rpc error: code = Internal desc = a bug", code: 500, says: "a bug"},
		"something of the server itself":    {method: "PUT", message: "nil pointer", code: 500, says: "nil pointer"},
		"an applied object of another type": {method: "PATCH", content: apply, message: "failed to create typed patch object (x): y", code: 400, reason: "BadRequest", says: "typed patch"},
		"an applied list where an object belongs": {
			method: "PATCH", content: apply, message: "failed to convert new object (/x; ichor.maesh.dev/v1alpha1, Kind=TalosConfigPatch) to proper version (v1): expected a JSON object, got a list", code: 400, reason: "BadRequest", says: "got a list",
		},
		"the same words, but not of an apply":     {method: "PATCH", message: "failed to create typed patch object (x): y", code: 500, says: "typed patch"},
		"a watch, which is a stream":              {method: "GET", verb: "watch", message: "etcdserver: no leader", code: 500, says: "no leader"},
		"a path that isn't one of the resources'": {method: "GET", path: "/readyz", message: "etcdserver: no leader", code: 500, says: "no leader"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			library := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusInternalServerError)
				status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 500, Message: test.message}
				if err := json.NewEncoder(w).Encode(status); err != nil {
					t.Error(err)
				}
			})
			if test.path == "" {
				test.path = path
			}
			if test.verb == "" {
				test.verb = strings.ToLower(test.method)
			}
			req := httptest.NewRequest(test.method, test.path, nil)
			req.Header.Set("Content-Type", test.content)
			req = req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{Verb: test.verb, IsResourceRequest: true}))
			answer := httptest.NewRecorder()
			withFaultsExplained(library).ServeHTTP(answer, req)
			var got metav1.Status
			if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
				t.Fatalf("%v\n%s", err, answer.Body)
			}
			if answer.Code != test.code || int(got.Code) != test.code || got.Reason != test.reason || !strings.Contains(got.Message, test.says) || !strings.Contains(got.Message, test.message) {
				t.Errorf("%d %+v, want %d, %q, a message with %q and what was said", answer.Code, got, test.code, test.reason, test.says)
			}
			if answer.Header().Get("Retry-After") != "" {
				t.Error("clients would repeat it by themselves")
			}
		})
	}
}

func TestWhatIsNo500PassesThrough(t *testing.T) {
	t.Parallel()
	library := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("etcdserver: no leader"))
	})
	answer := httptest.NewRecorder()
	withFaultsExplained(library).ServeHTTP(answer, httptest.NewRequest("GET", "/apis/ichor.maesh.dev/v1alpha1/talosclusters", nil))
	if answer.Code != http.StatusTeapot || answer.Body.String() != "etcdserver: no leader" {
		t.Errorf("%d %q", answer.Code, answer.Body)
	}
}

// A log that is followed is an answer whose parts have to arrive before its end.
func TestWhatIsWrittenArrivesBeforeTheEnd(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	handler := withFaultsExplained(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// As the library passes on what the metrics count.
		w = responsewriter.WrapForHTTP1Or2(&heldFault{ResponseWriter: w})
		_, _ = flushwriter.Wrap(w).Write([]byte("x"))
		select {
		case <-arrived:
		case <-req.Context().Done():
		}
	}))
	server := httptest.NewServer(handler)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/apis/ichor.maesh.dev/v1alpha1/talosmachines/m/log", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // it is read to its end
	if _, err := io.ReadFull(answer.Body, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	close(arrived)
}

// What an applied object has in a field may be a secret.
func TestAnAppliedObjectIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ message, want string }{
		"one field":                {"failed to create typed patch object (/x; y): .spec.machine: expected map, got &{[hunter2 hunter2]}", "failed to create typed patch object (/x; y): .spec.machine: expected map"},
		"a value of several lines": {"failed to create typed patch object (/x; y): .spec.a: expected numeric (int or float), got &{hunter2\nhunter2, got hunter2\n}", "failed to create typed patch object (/x; y): .spec.a: expected numeric (int or float)"},
		"several fields": {
			"failed to create typed patch object (/x; y): errors:\n  .spec.a: expected map, got &{hunter2\nhunter2: expected map, got x}\n  .spec.b: field not declared in schema\n  .spec.c: duplicate entries for key [name=\"a\"]",
			"failed to create typed patch object (/x; y): .spec.a: expected map; .spec.b: field not declared in schema; .spec.c: duplicate entries for key [name=\"a\"]",
		},
		"no value": {"failed to create typed patch object (/x; y): .spec.a: field not declared in schema", "failed to create typed patch object (/x; y): .spec.a: field not declared in schema"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := httptest.NewRequest("PATCH", "/apis/ichor.maesh.dev/v1alpha1/talosconfigpatches/x", nil)
			req.Header.Set("Content-Type", "application/apply-patch+yaml")
			if got := explain(req, test.message); got == nil || got.ErrStatus.Message != test.want {
				t.Errorf("it says %v\nwant    %s", got, test.want)
			}
		})
	}
}
