// SPDX-License-Identifier: Apache-2.0

package killer

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

func request(t *testing.T, method, path string, body []byte) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://cluster"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWritesAreToldApart(t *testing.T) {
	t.Parallel()
	lease := &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, ObjectMeta: metav1.ObjectMeta{Name: "leader"}}
	encoded, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), lease)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		method, path, body string
		want               Write
		reads              bool
	}{
		"a read":       {method: "GET", path: "/apis/ichor.maesh.dev/v1alpha1/talosmachines/a", reads: true},
		"a question":   {method: "POST", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body: "{}", reads: true},
		"a new object": {method: "POST", path: "/api/v1/namespaces/system/secrets", body: `{"metadata":{"name":"bundle"}}`, want: Write{Act: "create secrets", Object: "bundle"}},
		"a namespace":  {method: "POST", path: "/api/v1/namespaces", body: `{"metadata":{"name":"system"}}`, want: Write{Act: "create namespaces", Object: "system"}},
		"a deletion":   {method: "DELETE", path: "/api/v1/nodes/one", body: `{}`, want: Write{Act: "delete nodes", Object: "one"}},
		"a subresource": {
			method: "PATCH", path: "/apis/ichor.maesh.dev/v1alpha1/talosmachines/a/approval", body: `{}`,
			want: Write{Act: "patch talosmachines/approval", Object: "a"},
		},
		"an event": {
			method: "POST", path: "/api/v1/namespaces/default/events", body: `{"metadata":{"name":"a.17"},"involvedObject":{"name":"a"},"reason":"Applied"}`,
			want: Write{Act: "create events", Object: "a:Applied"},
		},
		"a status": {
			method: "PUT", path: "/apis/ichor.maesh.dev/v1alpha1/talosmachines/a/status",
			body: `{"metadata":{"name":"a"},"status":{"phase":"Installing","provisioning":{"intendedAt":"2026-01-01T00:00:00Z","appliedAt":"2026-01-01T00:00:01Z"},
				"conditions":[{"type":"Ready","status":"False","reason":"Installing","message":"30 s left"},{"type":"ConfigApplied","status":"True","reason":"Applied"}]}}`,
			want: Write{
				Act: "update talosmachines/status", Object: "a",
				State: "Installing intended applied ConfigApplied=True(Applied) Ready=False(Installing)",
			},
		},
		"another encoding": {
			method: "PUT", path: "/apis/coordination.k8s.io/v1/namespaces/system/leases/leader", body: string(encoded),
			want: Write{Act: "update leases", Object: "leader"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, writes := describe(request(t, tc.method, tc.path, []byte(tc.body)))
			if writes == tc.reads {
				t.Fatalf("it counts as a write: %t", writes)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
