// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"maesh.dev/ichor/pkg/apis/ichor/talosschema"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/apiserver/harness"
	"maesh.dev/ichor/test/documents"
)

// Each kind of document that Talos has is taken as a person writes it: applied twice it is the same object, machines of both
// roles are shown with it, and without its secrets; and where a field's name is wrong, nothing is stored and the field is
// named.
func TestEveryKindOfDocument(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 2), testContext(t)
	for i, role := range []v1alpha1.MachineRole{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker} {
		approval := approve(w.machines[i], role)
		approval.Spec.Hostname = string(role)
		if _, err := w.approver.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, w.machines[i].Name, approval, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	examples, err := documents.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range examples {
		// One after the other: two of them may not go together on a machine.
		t.Run(example.Kind, func(t *testing.T) { w.takesDocument(ctx, t, example) })
	}
}

func (w *world) takesDocument(ctx context.Context, t *testing.T, example documents.Example) {
	patches := w.admin.IchorV1alpha1().TalosConfigPatches()
	manifest, err := yaml.YAMLToJSON(example.Text)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.ToLower(example.Kind)
	apply := func() (*v1alpha1.TalosConfigPatch, error) {
		return patches.Patch(ctx, name, types.ApplyPatchType, manifest, metav1.PatchOptions{FieldManager: "kubectl", Force: ptr.To(true)})
	}
	if example.Kind == documents.Approved {
		if _, err := apply(); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "approved") {
			t.Errorf("got %v, want a refusal that names who decides", err)
		}
		return
	}
	misspellings, err := example.Misspellings()
	if err != nil {
		t.Fatal(err)
	}
	wrong := misspellings[0]
	if _, err := patches.Create(ctx, wrong.Patch, metav1.CreateOptions{}); !names(err, wrong.Path) {
		t.Errorf("%s is misspelt, and the answer is %v", wrong.Path, err)
	}
	first, err := apply()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := apply(); err != nil || again.ResourceVersion != first.ResourceVersion || again.Generation != 1 {
		t.Errorf("applied again it is another object (generation %d), or refused: %v", again.Generation, err)
	}
	viewer := w.Env.Client(t, 0, harness.Viewer).IchorV1alpha1().RESTClient()
	for _, machine := range w.machines {
		var got v1alpha1.TalosMachineConfig
		if err := viewer.Get().AbsPath(group + "/talosmachines/" + machine.Name + "/config").Do(ctx).Into(&got); err != nil {
			t.Errorf("what the machine is to have with it: %v", err)
			continue
		}
		if len(got.Patches) != 1 || example.Kind != documents.Machine && example.Kind != documents.Cluster && !strings.Contains(got.Text, "kind: "+example.Kind) {
			t.Errorf("the machine is to have %v, and not the document", got.Patches)
		}
		if strings.Contains(got.Text, placeholder) {
			t.Error("what stands for a secret is shown as if it was one")
		}
	}
	if err := patches.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// placeholder begins what the server renders in the place of secrets, which it doesn't have.
const placeholder = "aWNob3It"

// names tells whether an error is a refusal that names a field.
func names(err error, path string) bool {
	status, ok := err.(apierrors.APIStatus) //nolint:errorlint // the client returns it as it is
	if !ok || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool { return cause.Field == path })
}

// What `kubectl explain` reads has Talos' own text for each field of an example.
func TestEveryFieldOfADocumentIsExplained(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 0), testContext(t)
	body, err := w.raw(t).Get().AbsPath("/openapi/v3" + group).DoRaw(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var served struct {
		Components struct{ Schemas map[string]schema }
	}
	if err := json.Unmarshal(body, &served); err != nil {
		t.Fatal(err)
	}
	definition := func(kind string) schema {
		for name, s := range served.Components.Schemas {
			if strings.HasSuffix(name, "."+kind) {
				return s
			}
		}
		t.Fatalf("no schema of %s is served", kind)
		return schema{}
	}
	for part, of := range map[string]string{"MachineSection": talosschema.Machine, "ClusterSection": talosschema.Cluster} {
		explains(t, part, definition(part), talosschema.OpenAPI(of).Properties)
	}
	for _, kind := range talosschema.Kinds() {
		properties := talosschema.Document(kind).Properties
		for _, own := range []string{"apiVersion", "kind", "name"} {
			delete(properties, own)
		}
		explains(t, kind, definition("ConfigDocument"), properties)
	}
}

// explains wants the text of each property to be among what is said of the field.
func explains(t *testing.T, path string, got schema, want map[string]spec.Schema) {
	t.Helper()
	for name, property := range want {
		field := got.Properties[name]
		if !strings.Contains(field.Description, strings.TrimSpace(property.Description)) {
			t.Errorf("%s.%s is said to be %q, want %q", path, name, field.Description, property.Description)
		}
		explains(t, path+"."+name, field, property.Properties)
	}
}
