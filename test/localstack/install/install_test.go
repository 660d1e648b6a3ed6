// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"maesh.dev/ichor/artifacts"
)

func TestEveryManifestCanBeInstalled(t *testing.T) {
	t.Parallel()
	objects, err := artifacts.Install()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		r, known := resources[object.GroupVersionKind().GroupKind()]
		if !known || r.namespaced != (object.GetNamespace() != "") {
			t.Errorf("%s %s in namespace %q: in the table as %+v (%v)", object.GetKind(), object.GetName(), object.GetNamespace(), r, known)
		}
	}
}

func TestTheAPIServiceIsPointedAtAPort(t *testing.T) {
	t.Parallel()
	objects, err := artifacts.Install()
	if err != nil {
		t.Fatal(err)
	}
	service := objects[len(objects)-1]
	if err := pointTo(service, 40123); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"namespace": "ichor-system", "name": "ichor-apiserver", "port": int64(40123)}
	got, _, err := unstructured.NestedMap(service.Object, "spec", "service")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("service (%v, -want +got):\n%s", err, diff)
	}
	if bundle, set, err := unstructured.NestedString(service.Object, "spec", "caBundle"); set || err != nil {
		t.Errorf("caBundle %q (%v), want none: it is the controller's", bundle, err)
	}
}

func TestAvailabilityIsReadFromTheCondition(t *testing.T) {
	t.Parallel()
	condition := func(status string) map[string]any {
		return map[string]any{"type": "Available", "status": status, "message": "it says so"}
	}
	tests := map[string]struct {
		conditions []any
		available  bool
		message    string
	}{
		"nobody looked yet": {nil, false, ""},
		"another condition": {[]any{map[string]any{"type": "Other", "status": "True"}}, false, ""},
		"not yet":           {[]any{condition("False")}, false, "it says so"},
		"available":         {[]any{condition("True")}, true, "it says so"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			available, message := availability(&unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": test.conditions}}})
			if available != test.available || message != test.message {
				t.Errorf("%v %q, want %v %q", available, message, test.available, test.message)
			}
		})
	}
}
