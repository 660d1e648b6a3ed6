// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/apiserver/harness"
)

// A patch is held against the cluster that it is for: what its Talos doesn't know, and what its Cilium decides on.
func TestAPatchFitsItsCluster(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 0), testContext(t)
	admin := w.Env.Client(t, 0, harness.Admin).IchorV1alpha1()
	change := func(change func(*v1alpha1.TalosClusterSpec)) {
		t.Helper()
		cluster, err := admin.TalosClusters().Get(ctx, "prod", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		change(&cluster.Spec)
		if _, err := admin.TalosClusters().Update(ctx, cluster, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: "tuning"}}
	patch.Spec.Target.ClusterRef.Name = "prod"
	patch.Spec.Cluster = &v1alpha1.ClusterSection{Raw: []byte(`{"network":{"cni":{"name":"flannel"}}}`)}
	patch.Spec.Documents = []v1alpha1.ConfigDocument{
		{Raw: []byte(`{"apiVersion":"v1alpha1","kind":"EnvironmentConfig","variables":{"A":"b"}}`)},
		{Raw: []byte(`{"apiVersion":"v1alpha1","kind":"UserVolumeConfig","name":"data","mount":{"secure":true},"provisioning":{"maxSize":"1GiB","diskSelector":{"match":"disk.size > 1u"}}}`)},
	}
	create := func() []string {
		_, err := admin.TalosConfigPatches().Create(ctx, patch, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		var status *apierrors.StatusError
		if err == nil {
			return nil
		}
		if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
			t.Fatalf("got %v, want a 422", err)
		}
		var fields []string
		for _, cause := range status.ErrStatus.Details.Causes {
			fields = append(fields, cause.Field)
		}
		slices.Sort(fields)
		return fields
	}
	for _, tc := range []struct {
		what, talos string
		cilium      bool
		want        []string
	}{
		{"an older Talos", "v1.12.7", false, []string{"spec.documents[0].kind", "spec.documents[1].mount"}},
		{"one that knows it", "v1.13.9", false, nil},
		{"one with Cilium", "v1.13.9", true, []string{"spec.cluster.network.cni"}},
		{"an older one with Cilium", "v1.12.7", true, []string{"spec.cluster.network.cni", "spec.documents[0].kind", "spec.documents[1].mount"}},
	} {
		change(func(spec *v1alpha1.TalosClusterSpec) {
			spec.TalosVersion, spec.KubernetesVersion = tc.talos, "v1.34.1"
			spec.CNI = v1alpha1.CNI{}
			if tc.cilium {
				spec.CNI.Cilium = &v1alpha1.Cilium{Version: "1.20.4"}
			}
		})
		if got := create(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got the faults %v, want %v", tc.what, got, tc.want)
		}
	}
	patch.Spec.Target.ClusterRef.Name = "edge"
	if got := create(); got != nil {
		t.Errorf("a cluster that isn't there yet: got the faults %v", got)
	}

	// A cluster may change after its patches: these can still be labelled and deleted, but not changed into the same again.
	patch.Spec.Target.ClusterRef.Name = "prod"
	change(func(spec *v1alpha1.TalosClusterSpec) { spec.TalosVersion, spec.CNI = "v1.13.9", v1alpha1.CNI{} })
	if _, err := admin.TalosConfigPatches().Create(ctx, patch, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	change(func(spec *v1alpha1.TalosClusterSpec) { spec.TalosVersion = "v1.12.7" })
	merge := func(text string) error {
		_, err := admin.TalosConfigPatches().Patch(ctx, patch.Name, types.MergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	if err := merge(`{"metadata":{"labels":{"a":"b"}}}`); err != nil {
		t.Errorf("a label: %v", err)
	}
	if err := merge(`{"spec":{"priority":7}}`); !apierrors.IsInvalid(err) {
		t.Errorf("another priority: got %v, want a 422", err)
	}
	if err := admin.TalosConfigPatches().Delete(ctx, patch.Name, metav1.DeleteOptions{}); err != nil {
		t.Errorf("deleting it: %v", err)
	}
}

// A JSON patch inside of a patch is refused with the reason, wherever somebody puts it, and its values aren't repeated.
func TestAJSONPatchInAPatchIsRefused(t *testing.T) {
	t.Parallel()
	w, ctx := &world{Env: harness.Start(t)}, testContext(t)
	client := of(w.dynamic(t, harness.Admin), "TalosConfigPatch")
	operation := object{"op": "add", "path": "/machine/env/PASSWORD", "value": secretText}
	for field, value := range map[string]any{
		"spec.machine": list{operation}, "spec.cluster": list{operation}, "spec.documents.0": operation, "spec.documents": list{list{operation}},
	} {
		patch := example(t, "TalosConfigPatch")
		set(t, patch, field, normalized(t, value))
		_, err := client.Create(ctx, patch, metav1.CreateOptions{})
		if !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) || strings.Contains(err.Error(), secretText) {
			t.Errorf("%s: got %v, want a refusal that doesn't repeat the value", field, err)
			continue
		}
		if !strings.Contains(err.Error(), "RFC 6902") {
			t.Errorf("%s: the reason isn't said: %v", field, err)
		}
		// Server-side apply compares with the schema first, in words of its own.
		if _, err := client.Apply(ctx, patch.GetName(), patch, metav1.ApplyOptions{FieldManager: "kubectl"}); err == nil {
			t.Errorf("%s: it can be applied", field)
		}
	}
}
