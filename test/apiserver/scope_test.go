// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/test/apiserver/harness"
)

func TestPathsWithANamespaceSayWhereTheResourcesAre(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 1), testContext(t)
	body := []byte(`{"apiVersion":"ichor.maesh.dev/v1alpha1"}`)
	for kind, resource := range resources {
		at := group + "/namespaces/default/" + resource
		for what, err := range map[string]error{
			"list":           w.raw(t).Get().AbsPath(at).Do(ctx).Error(),
			"watch":          w.raw(t).Get().AbsPath(at).Param("watch", "1").Do(ctx).Error(),
			"get":            w.raw(t).Get().AbsPath(at, "x").Do(ctx).Error(),
			"create":         w.raw(t).Post().AbsPath(at).Body(body).Do(ctx).Error(),
			"replace status": w.raw(t).Put().AbsPath(at, "x", "status").Body(body).Do(ctx).Error(),
			"delete":         w.raw(t).Delete().AbsPath(at, "x").Do(ctx).Error(),
		} {
			if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), resource+" belong to no namespace") || !strings.Contains(err.Error(), group+"/"+resource) {
				t.Errorf("%s: %s in a namespace: %v, want a 404 that says where they are", kind, what, err)
			}
		}
	}
	if err := w.Client(t, 0, harness.Impersonator).IchorV1alpha1().RESTClient().Get().AbsPath(group + "/namespaces/default/talosmachines").Do(ctx).Error(); !apierrors.IsForbidden(err) {
		t.Errorf("somebody without rights: %v, want a 403", err)
	}
}

func TestOwnersThatBelongToANamespaceAreRefused(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	w, ctx := &world{Env: env}, testContext(t)
	client := w.dynamic(t, harness.Admin)
	owner := func(apiVersion, kind string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "x", UID: types.UID("uid-of-" + kind)}
	}
	for kind := range resources {
		object := example(t, kind)
		for _, refused := range []metav1.OwnerReference{owner("v1", "ConfigMap"), owner("apps/v1", "Deployment"), owner("batch/v1", "Job"), owner("ichor.maesh.dev/v1alpha1", "TalosMachines")} {
			object.SetOwnerReferences([]metav1.OwnerReference{owner("v1", "Node"), refused})
			_, err := of(client, kind).Create(ctx, object, metav1.CreateOptions{})
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.ownerReferences[1]") {
				t.Errorf("%s owned by a %s: %v, want a 422 that names it", kind, refused.Kind, err)
			}
			_, err = of(client, kind).Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "test"})
			if !apierrors.IsInvalid(err) {
				t.Errorf("%s owned by a %s, applied: %v, want a 422", kind, refused.Kind, err)
			}
		}
		taken := []metav1.OwnerReference{owner("v1", "Node"), owner("ichor.maesh.dev/v1alpha1", "TalosCluster"), owner("example.com/v1", "Rack")}
		object.SetOwnerReferences(taken)
		made, err := of(client, kind).Create(ctx, object, metav1.CreateOptions{})
		if err != nil {
			t.Errorf("%s with owners that belong to no namespace, or may: %v", kind, err)
			continue
		}
		made.SetOwnerReferences(append(taken, owner("v1", "Secret")))
		if _, err := of(client, kind).Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("%s given a Secret as owner: %v, want a 422", kind, err)
		}
	}
}

func TestOwnKindsAreTheServedOnes(t *testing.T) {
	t.Parallel()
	var served []string
	for kind := range resources {
		served = append(served, kind)
	}
	slices.Sort(served)
	if !slices.Equal(served, validation.OwnKinds) {
		t.Errorf("owners of the group may be %v, served are %v", validation.OwnKinds, served)
	}
}

// A kind that is spelled wrong would be refused to nobody.
func TestNamespacedKindsAreKindsOfKubernetes(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for kind := range scheme.Scheme.AllKnownTypes() {
		known[kind.Group+" "+kind.Kind] = true
	}
	for group, kinds := range validation.NamespacedKinds {
		for _, kind := range kinds {
			if !known[group+" "+kind] {
				t.Errorf("there is no kind %s in group %q", kind, group)
			}
		}
	}
}

// Who came through a door to a part of an object owns what is taken there, and nothing else.
func TestApplyThroughADoorToAPartOwnsThatPart(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	w, ctx := &world{Env: env, admin: env.Client(t, 0, harness.Admin)}, testContext(t)
	client := w.dynamic(t, harness.Admin)
	for _, kind := range []string{"TalosOperation", "IchorUser"} {
		if _, err := of(client, kind).Create(ctx, example(t, kind), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	request, err := json.Marshal(example(t, "TalosCredentialRequest").Object["spec"].(map[string]any)["request"])
	if err != nil {
		t.Fatal(err)
	}
	apply := func(path, door, manager, spec string) []byte {
		t.Helper()
		kind := map[string]string{"talosoperations": "TalosOperation", "ichorusers": "IchorUser"}[path]
		name := example(t, kind).GetName()
		body := `{"apiVersion":"ichor.maesh.dev/v1alpha1","kind":"` + kind + `","metadata":{"name":"` + name + `","labels":{"a":"b"}},"spec":` + spec + `}`
		out, err := w.raw(t).Verb(http.MethodPatch).AbsPath(group, path, name, door).Param("fieldManager", manager).
			SetHeader("Content-Type", "application/apply-patch+yaml").Body([]byte(body)).Do(ctx).Raw()
		if err != nil {
			t.Fatalf("%s/%s: %v\n%s", path, door, err, out)
		}
		return out
	}
	owned := func(out []byte, manager string) string {
		t.Helper()
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(out, &object); err != nil {
			t.Fatal(err)
		}
		for _, entry := range object.ManagedFields {
			if entry.Manager == manager {
				return entry.FieldsV1.GetRawString()
			}
		}
		return ""
	}
	for door, suspend := range map[string]string{"resume": "true", "cancel": "false"} {
		if got := owned(apply("talosoperations", door, "by-"+door, `{"suspend":`+suspend+`,"clusterRef":{"name":"prod"}}`), "by-"+door); got != "" {
			t.Errorf("%s: the applier owns %s, and wrote nothing of it", door, got)
		}
	}
	out := apply("ichorusers", "certificate", "by-certificate", `{"role":"Admin","displayName":"x","certificateRequest":{"request":`+string(request)+`,"ttl":"1h","by":"x"}}`)
	if got, want := owned(out, "by-certificate"), `{"f:spec":{"f:certificateRequest":{"f:request":{},"f:ttl":{}}}}`; got != want {
		t.Errorf("certificate: the applier owns %s, want %s", got, want)
	}
}
