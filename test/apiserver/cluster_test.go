// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/apiserver/harness"
)

func TestOnlyOneCluster(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 0), testContext(t)
	second := cluster(1)
	second.Name = "dev"
	if _, err := w.admin.IchorV1alpha1().TalosClusters().Create(ctx, second, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !hasCause(err, "OnlyOneCluster") {
		t.Errorf("second cluster: %v, want a 403 OnlyOneCluster", err)
	}
	if _, err := w.admin.IchorV1alpha1().TalosClusters().Create(ctx, cluster(3), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the same cluster again: %v, want a 409 AlreadyExists", err)
	}
}

func TestOnlyOneClusterWhenManyAreMadeAtOnce(t *testing.T) {
	t.Parallel()
	env, ctx := harness.Start(t, harness.Servers(2)), testContext(t)
	done := make(chan error, 8)
	for n := range cap(done) {
		client := env.Client(t, n%2, harness.Admin).IchorV1alpha1().TalosClusters()
		go func() {
			c := cluster(1)
			c.Name = fmt.Sprintf("prod-%d", n)
			_, err := client.Create(ctx, c, metav1.CreateOptions{})
			done <- err
		}()
	}
	made := 0
	for range cap(done) {
		switch err := <-done; {
		case err == nil:
			made++
		case !hasCause(err, "OnlyOneCluster"):
			t.Errorf("create: %v", err)
		}
	}
	list, err := env.Client(t, 0, harness.Admin).IchorV1alpha1().TalosClusters().List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) > 1 || made != len(list.Items) {
		t.Errorf("%d creations succeeded, %d clusters are there (%v); want at most one, and as many as succeeded", made, len(list.Items), err)
	}
}

func TestTheNetworkPluginNeedsTheVerb(t *testing.T) {
	t.Parallel()
	env, ctx := harness.Start(t), testContext(t)
	writer, admin := env.Client(t, 0, harness.Writer).IchorV1alpha1().TalosClusters(), env.Client(t, 0, harness.Admin).IchorV1alpha1().TalosClusters()
	withCilium := cluster(1)
	withCilium.Spec.CNI.Cilium = &v1alpha1.Cilium{Values: &v1alpha1.JSONObject{Raw: []byte(`{"b": 1, "a": {"$patch": "delete"}}`)}}
	if _, err := writer.Create(ctx, withCilium, metav1.CreateOptions{}); !hasCause(err, `needs the verb "configure" on talosclusters/cni`) {
		t.Errorf("creation with Cilium by a writer: %v", err)
	}
	made, err := admin.Create(ctx, withCilium, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creation with Cilium by an admin: %v", err)
	}
	if got := string(made.Spec.CNI.Cilium.Values.Raw); got != `{"a":{"$patch":"delete"},"b":1}` {
		t.Errorf("stored values: %s", got)
	}
	change := func(client interface {
		Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*v1alpha1.TalosCluster, error)
	}, body string,
	) error {
		_, err := client.Patch(ctx, "prod", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	for _, body := range []string{`{"spec":{"cni":{"cilium":{"values":{"b":2}}}}}`, `{"spec":{"cni":{"cilium":null}}}`, `{"spec":{"cni":{"cilium":{"version":"1.20.5"}}}}`} {
		if err := change(writer, body); !hasCause(err, "MissingVerb") {
			t.Errorf("%s by a writer: %v, want a 403", body, err)
		}
		if err := change(admin, body); err != nil {
			t.Errorf("%s by an admin: %v", body, err)
		}
	}
	if err := change(writer, `{"spec":{"driftPolicy":"Reapply"}}`); err != nil {
		t.Errorf("another field by a writer: %v", err)
	}
}

// TestOpaqueFieldsBehaveAsWithACustomResource does what kubectl apply, apply again, edit and patch do with a field that
// holds somebody else's object.
func TestOpaqueFieldsBehaveAsWithACustomResource(t *testing.T) {
	t.Parallel()
	env, ctx := harness.Start(t), testContext(t)
	clusters := env.Client(t, 0, harness.Admin).IchorV1alpha1().TalosClusters()
	apply := func(values string) *v1alpha1.TalosCluster {
		t.Helper()
		c := cluster(1)
		c.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "TalosCluster"}
		c.Spec.CNI.Cilium = &v1alpha1.Cilium{Values: &v1alpha1.JSONObject{Raw: []byte(values)}}
		body, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := clusters.Patch(ctx, "prod", types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "kubectl", Force: ptr.To(true)})
		if err != nil {
			t.Fatalf("apply: %v", err)
		}
		return got
	}
	want := func(c *v1alpha1.TalosCluster, values string) {
		t.Helper()
		if diff := cmp.Diff(values, string(c.Spec.CNI.Cilium.Values.Raw)); diff != "" {
			t.Errorf("values (-want +got):\n%s", diff)
		}
	}
	first := apply(`{"hubble":{"$patch":"delete","ports":[1,2]},"big":9007199254740993}`)
	want(first, `{"big":9007199254740993,"hubble":{"$patch":"delete","ports":[1,2]}}`)
	second := apply(`{"hubble":{"ports":[1,2],"$patch":"delete"},"big":9007199254740993}`)
	if first.ResourceVersion != second.ResourceVersion {
		t.Errorf("applied again, the cluster moves from %s to %s", first.ResourceVersion, second.ResourceVersion)
	}
	want(apply(`{"hubble":{"ports":[3]}}`), `{"hubble":{"ports":[3]}}`)
	merged, err := clusters.Patch(ctx, "prod", types.MergePatchType, []byte(`{"spec":{"cni":{"cilium":{"values":{"hubble":{"$patch":"replace","ports":null},"x":[{"$patch":"delete"}]}}}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("merge patch: %v", err)
	}
	want(merged, `{"hubble":{"$patch":"replace"},"x":[{"$patch":"delete"}]}`)
	edited, err := clusters.Patch(ctx, "prod", types.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/cni/cilium/values/x"}]`), metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("JSON patch: %v", err)
	}
	want(edited, `{"hubble":{"$patch":"replace"}}`)
	if _, err := clusters.Patch(ctx, "prod", types.MergePatchType, []byte(`{"spec":{"cni":{"cilium":{"values":"text"}}}}`), metav1.PatchOptions{}); err == nil || apierrors.IsInternalError(err) {
		t.Errorf("values that are no object: %v, want a refusal that isn't a 500", err)
	}
}

func TestAnEvenCountWarns(t *testing.T) {
	t.Parallel()
	env, ctx := harness.Start(t), testContext(t)
	var warnings warningList
	config := env.Config(0, harness.Admin)
	config.WarningHandler = &warnings
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.IchorV1alpha1().TalosClusters().Create(ctx, cluster(2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := warnings.all(); len(got) != 1 || !strings.HasPrefix(got[0], "spec.controlPlane.count: ") {
		t.Errorf("warnings: %q", got)
	}
}
