// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/apiserver/harness"
)

// resources are the resources by their kinds.
var resources = map[string]string{
	"TalosCluster": "talosclusters", "TalosMachine": "talosmachines", "TalosConfigPatch": "talosconfigpatches",
	"TalosOperation": "talosoperations", "TalosEtcdBackup": "talosetcdbackups", "TalosStorage": "talosstorages",
	"MachineReclaim": "machinereclaims", "TalosCredentialRequest": "taloscredentialrequests",
	"IchorInstallation": "ichorinstallations", "IchorUser": "ichorusers",
}

func (w *world) dynamic(t *testing.T, user string) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(w.Config(0, user))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func of(client dynamic.Interface, kind string) dynamic.ResourceInterface {
	return client.Resource(v1alpha1.SchemeGroupVersion.WithResource(resources[kind]))
}

// example is an example of a kind from the manifests: what people start from is what tests start from.
func example(t *testing.T, kind string) *unstructured.Unstructured {
	t.Helper()
	for _, object := range examples(t) {
		if object.GetKind() == kind {
			return object
		}
	}
	t.Fatalf("there is no example of a %s", kind)
	return nil
}

// examples are the examples of our own kinds.
func examples(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	all, err := artifacts.Examples()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool { return resources[o.GetKind()] == "" })
}

func TestEveryKindHasAnExampleThatAppliesTwice(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	w, ctx := &world{Env: env}, testContext(t)
	client := w.dynamic(t, harness.Admin)
	missing := map[string]bool{}
	for kind := range resources {
		missing[kind] = true
	}
	for _, object := range examples(t) {
		delete(missing, object.GetKind())
		name := object.GetKind() + " " + object.GetName()
		first, err := of(client, object.GetKind()).Apply(ctx, object.GetName(), object.DeepCopy(), metav1.ApplyOptions{FieldManager: "test"})
		if err != nil {
			t.Errorf("%s: apply: %v", name, err)
			continue
		}
		again, err := of(client, object.GetKind()).Apply(ctx, object.GetName(), object.DeepCopy(), metav1.ApplyOptions{FieldManager: "test"})
		if err != nil {
			t.Errorf("%s: apply again: %v", name, err)
			continue
		}
		if first.GetResourceVersion() != again.GetResourceVersion() || again.GetGeneration() != 1 {
			t.Errorf("%s: applied again, it went from version %s to %s and to generation %d", name, first.GetResourceVersion(), again.GetResourceVersion(), again.GetGeneration())
		}
	}
	if len(missing) > 0 {
		t.Errorf("no example of %v", missing)
	}
}

func TestTheDoorsOfEveryKindChangeTheirOwnFieldsOnly(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	w, ctx := &world{Env: env}, testContext(t)
	client := w.dynamic(t, harness.Admin)
	for _, kind := range []string{"TalosConfigPatch", "TalosOperation", "TalosEtcdBackup", "TalosStorage", "MachineReclaim", "TalosCredentialRequest", "IchorInstallation", "IchorUser"} {
		made, err := of(client, kind).Create(ctx, example(t, kind), metav1.CreateOptions{})
		if err != nil {
			t.Errorf("create %s: %v", kind, err)
			continue
		}
		condition := map[string]any{"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
		forged := made.DeepCopy()
		set(t, forged, "status.conditions", []any{condition})
		set(t, forged, "metadata.labels", map[string]any{"a": "b"})
		labelled, err := of(client, kind).Update(ctx, forged, metav1.UpdateOptions{})
		if err != nil {
			t.Errorf("%s: update: %v", kind, err)
			continue
		}
		if ready(t, labelled) != "" || labelled.GetLabels()["a"] != "b" || labelled.GetGeneration() != 1 {
			t.Errorf("%s: a write of the main resource wrote the status or moved the generation: %v", kind, labelled.Object)
		}
		observed := labelled.DeepCopy()
		set(t, observed, "status.conditions", []any{condition})
		set(t, observed, "spec", map[string]any{})
		set(t, observed, "metadata.labels", map[string]any{"c": "d"})
		after, err := of(client, kind).UpdateStatus(ctx, observed, metav1.UpdateOptions{})
		if err != nil {
			t.Errorf("%s: update of status: %v", kind, err)
			continue
		}
		if got := ready(t, after); got != "True" {
			t.Errorf("%s: the status door left condition Ready as %q", kind, got)
		}
		if diff := cmp.Diff(labelled.Object["spec"], after.Object["spec"]); diff != "" || after.GetLabels()["a"] != "b" || after.GetLabels()["c"] != "" || after.GetGeneration() != 1 {
			t.Errorf("%s: a write of the status changed spec or metadata (-want +got):\n%s\n%v", kind, diff, after.GetLabels())
		}
		if _, err := of(client, kind).Patch(ctx, made.GetName(), types.JSONPatchType, []byte(`[{"op":"test","path":"/kind","value":"`+kind+`"}]`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Errorf("%s: a patch that only tests: %v", kind, err)
		}
		if err := of(client, kind).Delete(ctx, made.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Errorf("%s: delete: %v", kind, err)
		}
	}
}

// ready is the status of an object's condition Ready, empty if there is none.
func ready(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		t.Fatal(err)
	}
	for _, condition := range conditions {
		if c := condition.(map[string]any); c["type"] == "Ready" {
			return c["status"].(string)
		}
	}
	return ""
}

func TestTablesAndSelectorsOfEveryKind(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	w, ctx := &world{Env: env, admin: env.Client(t, 0, harness.Admin)}, testContext(t)
	client := w.dynamic(t, harness.Admin)
	for kind, want := range map[string]struct {
		columns, row string
		selector     string
	}{
		"TalosConfigPatch":       {"Name,Target,Priority,Documents,Applied,Age", "storage-workers,prod/worker rack=1,100,3,0/0,", "spec.target.clusterRef.name=prod"},
		"TalosEtcdBackup":        {"Name,Schedule,Last,Size,Count,Ready,Age,Storage,Cluster", "prod,0 */6 * * *,<none>,<none>,0,<none>,", "spec.storageRef.name=minio"},
		"TalosStorage":           {"Name,Endpoint,Bucket,Ready,Age,Prefix,Region", "minio,https://s3.example.org:9000,backups,<none>,", "metadata.name=minio"},
		"MachineReclaim":         {"Name,Address,UUID,Phase,Message,Age", "old-worker,10.0.0.77,4c4c4544-0051-3610-8052-b4c04f4c3199,<none>,<none>,", "spec.uuid=4c4c4544-0051-3610-8052-b4c04f4c3199"},
		"TalosCredentialRequest": {"Name,Role,Requester,Expires,Age,Cluster", "alice-reader,os:reader,admin,<none>,", "spec.role=os:reader"},
		"IchorInstallation":      {"Name,Version,Desired,Ready,Age,URL", "ichor,<none>,v0.1.0,<none>,", "metadata.name=ichor"},
		"IchorUser":              {"Name,Role,Disabled,LastLogin,Age,Name", "alice,Operator,false,<none>,", "spec.role=Operator"},
	} {
		if _, err := of(client, kind).Create(ctx, example(t, kind), metav1.CreateOptions{}); err != nil {
			t.Errorf("create %s: %v", kind, err)
			continue
		}
		body, err := w.raw(t).Get().AbsPath(group, resources[kind]).SetHeader("Accept", asTable).Do(ctx).Raw()
		if err != nil {
			t.Errorf("%s as table: %v", kind, err)
			continue
		}
		var table metav1.Table
		if err := json.Unmarshal(body, &table); err != nil || len(table.Rows) != 1 {
			t.Errorf("%s: table with %d rows: %v", kind, len(table.Rows), err)
			continue
		}
		var columns, cells []string
		for _, column := range table.ColumnDefinitions {
			columns = append(columns, column.Name)
		}
		for _, cell := range table.Rows[0].Cells {
			cells = append(cells, fmt.Sprint(cell))
		}
		if got := strings.Join(columns, ","); got != want.columns {
			t.Errorf("%s: columns %s, want %s", kind, got, want.columns)
		}
		if got := strings.Join(cells, ","); !strings.HasPrefix(got, want.row) || len(cells) != len(columns) {
			t.Errorf("%s: row %s, want %s…", kind, got, want.row)
		}
		for selector, count := range map[string]int{want.selector: 1, "metadata.name=none": 0} {
			list, err := of(client, kind).List(ctx, metav1.ListOptions{FieldSelector: selector})
			if err != nil || len(list.Items) != count {
				t.Errorf("%s: %s selects %v, %v, want %d", kind, selector, list, err, count)
			}
		}
		if _, err := of(client, kind).List(ctx, metav1.ListOptions{FieldSelector: "spec.nothing=1"}); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: a selector that isn't supported: %v, want a 400", kind, err)
		}
	}
}

func TestAppliedObjectsThatDontFitTheSchemaAreTheClientsFault(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	w, ctx := &world{Env: env}, testContext(t)
	client := w.dynamic(t, harness.Admin)
	for what, change := range map[string]func(*unstructured.Unstructured){
		"a text for a number":     func(o *unstructured.Unstructured) { set(t, o, "spec.priority", "high") },
		"a list for an object":    func(o *unstructured.Unstructured) { set(t, o, "spec.machine.sysctls", []any{"a"}) },
		"an object for a list":    func(o *unstructured.Unstructured) { set(t, o, "spec.documents", map[string]any{"a": "b"}) },
		"one key twice in a list": func(o *unstructured.Unstructured) { set(t, o, "spec.target.machineNames", []any{"a", "a"}) },
		"one document twice": func(o *unstructured.Unstructured) {
			set(t, o, "spec.documents.1", o.Object["spec"].(map[string]any)["documents"].([]any)[0])
		},
		"a document without kind":  func(o *unstructured.Unstructured) { set(t, o, "spec.documents.0.kind", nothing{}) },
		"a field that isn't there": func(o *unstructured.Unstructured) { set(t, o, "spec.prioritie", int64(1)) },
	} {
		object := example(t, "TalosConfigPatch")
		change(object)
		_, err := of(client, "TalosConfigPatch").Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "test"})
		if !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v, want a 400 or a 422", what, err)
		}
	}
	list, err := of(client, "TalosConfigPatch").List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("after all were refused there are %v, %v", list, err)
	}
}

// Two people who each apply one document of a patch don't take the other's away: kind and name tell documents apart.
func TestTwoManagersOfOnePatch(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	w, ctx := &world{Env: env}, testContext(t)
	client := of(w.dynamic(t, harness.Admin), "TalosConfigPatch")
	part := func(document map[string]any, sysctl string) *unstructured.Unstructured {
		object := example(t, "TalosConfigPatch")
		object.Object["spec"] = map[string]any{
			"target":    map[string]any{"clusterRef": map[string]any{"name": "prod"}},
			"machine":   map[string]any{"sysctls": map[string]any{sysctl: "1"}},
			"documents": []any{document},
		}
		return object
	}
	logs := map[string]any{"apiVersion": "v1alpha1", "kind": "UserVolumeConfig", "name": "logs", "provisioning": map[string]any{"minSize": "2GiB"}}
	volume := map[string]any{"apiVersion": "v1alpha1", "kind": "UserVolumeConfig", "name": "data", "provisioning": map[string]any{"minSize": "1GiB"}}
	if _, err := client.Apply(ctx, "storage-workers", part(logs, "net.a"), metav1.ApplyOptions{FieldManager: "one"}); err != nil {
		t.Fatal(err)
	}
	both, err := client.Apply(ctx, "storage-workers", part(volume, "net.b"), metav1.ApplyOptions{FieldManager: "two"})
	if err != nil {
		t.Fatal(err)
	}
	documents, _, err := unstructured.NestedSlice(both.Object, "spec", "documents")
	sysctls, _, err2 := unstructured.NestedStringMap(both.Object, "spec", "machine", "sysctls")
	if err != nil || err2 != nil || len(documents) != 2 || len(sysctls) != 2 {
		t.Fatalf("want both documents and both sysctls, got %v, %v (%v, %v)", documents, sysctls, err, err2)
	}
	alone, err := client.Apply(ctx, "storage-workers", part(logs, "net.a"), metav1.ApplyOptions{FieldManager: "two", Force: true})
	if err != nil {
		t.Fatal(err)
	}
	if documents, _, err = unstructured.NestedSlice(alone.Object, "spec", "documents"); err != nil || len(documents) != 1 {
		t.Errorf("the second manager gave its document up, and it is still there: %v, %v", documents, err)
	}
}
