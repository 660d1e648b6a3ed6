// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/test/apiserver/harness"
)

// opaque are the fields of Talos' configuration and of other programs' settings, whose values may be secrets.
var opaque = regexp.MustCompile(`^TalosConfigPatch spec\.(machine|cluster|documents)(\.|$)|^TalosCluster spec\.cni\.cilium\.values`)

// named are fields that name a document: they are in its path.
var named = regexp.MustCompile(`\.documents\.[0-9]+\.(apiVersion|kind|name)$`)

// A field that has a value of another JSON type is the client's fault, in whichever way it is written, and the value may
// be a secret.
func TestAFieldOfAnotherTypeIsTheClientsFaultAndIsNotRepeated(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	w, ctx := &world{Env: env}, testContext(t)
	client := w.dynamic(t, harness.Admin)
	values := []any{secretText, true, int64(7), []any{secretText}, []any{map[string]any{secretText: secretText}}, map[string]any{"x": secretText}, map[string]any{"x": []any{secretText}}}
	refused := 0
	for _, kind := range slices.Sorted(maps.Keys(resources)) {
		paths := below("spec", example(t, kind).Object["spec"])
		for _, path := range append(paths, "spec", "metadata.labels", "metadata.annotations") {
			for _, value := range values {
				for _, way := range []string{"create", "apply"} {
					object := example(t, kind)
					set(t, object, path, value)
					var err error
					if way == "create" {
						_, err = of(client, kind).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					} else {
						_, err = of(client, kind).Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "test", DryRun: []string{metav1.DryRunAll}})
					}
					what := fmt.Sprintf("%s: %s: %s: %T", kind, way, path, value)
					var status *apierrors.StatusError
					switch {
					case err == nil:
						continue
					case !errors.As(err, &status):
						t.Errorf("%s: %v, which the server didn't say", what, err)
					case status.ErrStatus.Code >= http.StatusInternalServerError:
						t.Errorf("%s: %d %v, want the client to be told", what, status.ErrStatus.Code, err)
					case opaque.MatchString(kind+" "+path) && !named.MatchString(path) && strings.Contains(err.Error(), secretText):
						t.Errorf("%s: the error repeats the value: %v", what, err)
					}
					refused++
				}
			}
		}
	}
	if refused < 1000 {
		t.Errorf("only %d were refused", refused)
	}
}

// below are the paths of all fields in a value of an object.
func below(path string, value any) []string {
	var out []string
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if strings.Contains(name, ".") {
				continue // a path couldn't tell it from two
			}
			at := path + "." + name
			out = append(append(out, at), below(at, value[name])...)
		}
	case []any:
		for i, each := range value {
			at := path + "." + strconv.Itoa(i)
			out = append(append(out, at), below(at, each)...)
		}
	}
	return out
}
