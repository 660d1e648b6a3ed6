// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"maesh.dev/ichor/test/apiserver/harness"
)

// nothing takes a field away.
type nothing struct{}

// wrong is an example with one field changed, and what is found faulty: that field, unless others are named.
type wrong struct {
	what, kind, path string
	value            any
	fields           []string
}

// set changes a field of an object; numbers are indexes of lists.
func set(t *testing.T, object *unstructured.Unstructured, path string, value any) {
	t.Helper()
	var at any = object.Object
	parts := strings.Split(path, ".")
	for i, part := range parts {
		last := i == len(parts)-1
		switch container := at.(type) {
		case map[string]any:
			if last {
				if _, remove := value.(nothing); remove {
					delete(container, part)
				} else {
					container[part] = value
				}
				return
			}
			if container[part] == nil {
				container[part] = map[string]any{}
			}
			at = container[part]
		case []any:
			index, err := strconv.Atoi(part)
			if err != nil || index >= len(container) {
				t.Fatalf("%s: %s is no index of a list of %d", path, part, len(container))
			}
			if last {
				container[index] = value
				return
			}
			at = container[index]
		default:
			t.Fatalf("%s: there is nothing below %s", path, part)
		}
	}
}

// spelled is a path as the server writes it: a.b[0].c
func spelled(path string) string {
	var out strings.Builder
	for i, part := range strings.Split(path, ".") {
		if _, err := strconv.Atoi(part); err == nil {
			out.WriteString("[" + part + "]")
			continue
		}
		if i > 0 {
			out.WriteString(".")
		}
		out.WriteString(part)
	}
	return out.String()
}

func TestWrongInputIsRefusedWithEveryFaultAndNotStored(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	w, ctx := &world{Env: env}, testContext(t)
	client := w.dynamic(t, harness.Admin)
	for i, tc := range wrongInputs() {
		object := example(t, tc.kind)
		set(t, object, tc.path, normalized(t, tc.value))
		fields := tc.fields
		if fields == nil {
			fields = []string{spelled(tc.path)}
		}
		_, err := of(client, tc.kind).Create(ctx, object, metav1.CreateOptions{})
		var status *apierrors.StatusError
		switch {
		case err == nil:
			t.Errorf("%d %s: %s: stored", i, tc.kind, tc.what)
			continue
		case !errors.As(err, &status) || status.ErrStatus.Code != http.StatusUnprocessableEntity:
			t.Errorf("%d %s: %s: %v, want a 422", i, tc.kind, tc.what, err)
			continue
		}
		got := map[string]bool{}
		for _, cause := range status.ErrStatus.Details.Causes {
			got[cause.Field] = true
		}
		for _, field := range fields {
			if !got[field] {
				t.Errorf("%d %s: %s: %s isn't named in %v", i, tc.kind, tc.what, field, err)
			}
		}
		if len(got) > len(fields) {
			t.Errorf("%d %s: %s: want %v to be faulty, got %v", i, tc.kind, tc.what, fields, err)
		}
		if strings.Contains(err.Error(), secretText) {
			t.Errorf("%d %s: %s: the error repeats a secret: %v", i, tc.kind, tc.what, err)
		}
	}
	for kind := range resources {
		list, err := of(client, kind).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) > 0 {
			t.Errorf("%s: after all were refused there are %v, %v", kind, list, err)
		}
	}
}

// normalized turns Go's values into JSON's.
func normalized(t *testing.T, value any) any {
	t.Helper()
	if _, remove := value.(nothing); remove {
		return value
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
