// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned/scheme"
	"maesh.dev/ichor/test/apiserver/harness"
)

const (
	group    = "/apis/ichor.maesh.dev/v1alpha1"
	asTable  = "application/json;as=Table;g=meta.k8s.io;v=v1"
	metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

func (w *world) raw(t *testing.T) rest.Interface {
	t.Helper()
	return w.admin.IchorV1alpha1().RESTClient()
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 0)
	list, err := w.admin.Discovery().ServerResourcesForGroupVersion("ichor.maesh.dev/v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range list.APIResources {
		names = append(names, r.Name)
		if r.Namespaced {
			t.Errorf("%s is namespaced", r.Name)
		}
		if !strings.Contains(r.Name, "/") && (len(r.ShortNames) != 1 || !slices.Equal(r.Categories, []string{"ichor"}) || r.SingularName == "" || r.StorageVersionHash == "") {
			t.Errorf("%s: short names %v, categories %v, singular %q, storage version %q", r.Name, r.ShortNames, r.Categories, r.SingularName, r.StorageVersionHash)
		}
	}
	slices.Sort(names)
	want := []string{
		"ichorinstallations", "ichorinstallations/status", "ichorusers", "ichorusers/certificate", "ichorusers/password", "ichorusers/status",
		"machinereclaims", "machinereclaims/status", "talosclusters", "talosclusters/finalize", "talosclusters/status",
		"talosconfigpatches", "talosconfigpatches/preview", "talosconfigpatches/status", "taloscredentialrequests", "taloscredentialrequests/status",
		"talosetcdbackups", "talosetcdbackups/status", "talosmachines", "talosmachines/approval", "talosmachines/config",
		"talosmachines/drift", "talosmachines/finalize", "talosmachines/history",
		"talosmachines/identity", "talosmachines/log", "talosmachines/status", "talosoperations", "talosoperations/cancel", "talosoperations/resume",
		"talosoperations/status", "talosstorages", "talosstorages/status",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 2), testContext(t)
	for path, want := range map[string]struct{ columns, row string }{
		group + "/talosmachines": {
			"Name Cluster Role Approval Stage Ready Address Talos Drift Age UUID* Serial* Node* Schematic*",
			machineUUID(0) + " prod <none> pending maintenance <none> 10.0.0.1 <none> <none>",
		},
		group + "/talosmachines/" + machineUUID(1): {
			"Name Cluster Role Approval Stage Ready Address Talos Drift Age UUID* Serial* Node* Schematic*",
			machineUUID(1) + " prod <none> pending maintenance <none> 10.0.0.2 <none> <none>",
		},
		group + "/talosclusters": {
			"Name Endpoint Talos Kubernetes CP Workers Etcd Drift Age", "prod 10.0.0.10:6443 v1.14.5 v1.36.6 0/3 0/0 <none> <none>",
		},
	} {
		body, err := w.raw(t).Get().AbsPath(path).SetHeader("Accept", asTable).DoRaw(ctx)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		var table metav1.Table
		if err := json.Unmarshal(body, &table); err != nil {
			t.Fatal(err)
		}
		var columns []string
		for _, c := range table.ColumnDefinitions {
			name := c.Name
			if c.Priority > 0 {
				name += "*"
			}
			columns = append(columns, name)
		}
		if got := strings.Join(columns, " "); got != want.columns {
			t.Errorf("%s: columns %q, want %q", path, got, want.columns)
		}
		if len(table.Rows) == 0 || table.ResourceVersion == "" || !strings.HasPrefix(strings.Trim(fmt.Sprint(table.Rows[0].Cells), "[]"), want.row) {
			t.Errorf("%s: version %q, rows %v, want first %q", path, table.ResourceVersion, table.Rows, want.row)
		}
	}
}

func TestSelectors(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 3), testContext(t)
	machines := w.approver.IchorV1alpha1().TalosMachines()
	if _, err := machines.UpdateApproval(ctx, machineUUID(0), approve(w.machines[0], v1alpha1.RoleWorker), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for selector, want := range map[string]int{
		"spec.approvalState=pending": 2, "spec.approvalState=approved": 1, "spec.role=worker": 1, "spec.clusterRef.name=prod": 3, "spec.clusterRef.name=dev": 0,
		"status.stage=maintenance": 3, "metadata.name=" + machineUUID(2): 1, "spec.approvalState!=approved,status.stage=maintenance": 2,
	} {
		list, err := machines.List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil || len(list.Items) != want {
			t.Errorf("%s: %d machines, %v; want %d", selector, len(list.Items), err, want)
		}
	}
	if _, err := machines.List(ctx, metav1.ListOptions{FieldSelector: "spec.hostname=x"}); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "spec.approvalState") {
		t.Errorf("a selector that isn't served: %v, want a 400 that says which are", err)
	}
}

func TestPagesAndWatch(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 5), testContext(t)
	machines := w.admin.IchorV1alpha1().TalosMachines()
	var names []string
	options := metav1.ListOptions{Limit: 2}
	for {
		page, err := machines.List(ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Items {
			names = append(names, m.Name)
		}
		if options.Continue = page.Continue; options.Continue == "" {
			options.ResourceVersion = page.ResourceVersion
			break
		}
	}
	if len(names) != 5 || !slices.IsSorted(names) {
		t.Errorf("pages: %v", names)
	}
	watcher, err := machines.Watch(ctx, metav1.ListOptions{ResourceVersion: options.ResourceVersion, FieldSelector: "spec.approvalState=pending", AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	if _, err := w.approver.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, machineUUID(3), approve(w.machines[3], v1alpha1.RoleWorker), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for event := range watcher.ResultChan() {
		if event.Type == watch.Bookmark {
			continue
		}
		if m, ok := event.Object.(*v1alpha1.TalosMachine); event.Type != watch.Deleted || !ok || m.Name != machineUUID(3) {
			t.Errorf("approved machine leaves the watch of pending ones by %s %v", event.Type, event.Object)
		}
		break
	}
}

func TestMetadataOnlyClients(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 2), testContext(t)
	body, err := w.raw(t).Get().AbsPath(group+"/talosmachines").SetHeader("Accept", metadata).DoRaw(ctx)
	if err != nil || !strings.HasPrefix(string(body), "k8s\x00") || strings.Contains(string(body), "SN0") {
		t.Errorf("metadata of a list, in protobuf: %v, %.60q", err, body)
	}
	body, err = w.raw(t).Get().AbsPath(group+"/talosmachines/"+machineUUID(0)).SetHeader("Accept", strings.ReplaceAll(metadata, "List", "")).DoRaw(ctx)
	if err != nil || !strings.HasPrefix(string(body), "k8s\x00") {
		t.Errorf("metadata of a machine, in protobuf: %v, %.60q", err, body)
	}
	stream, err := w.raw(t).Get().AbsPath(group+"/talosmachines").Param("watch", "1").Param("timeoutSeconds", "1").
		SetHeader("Accept", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").DoRaw(ctx)
	if err != nil || len(stream) == 0 {
		t.Errorf("watch of metadata, in protobuf: %v, %d bytes", err, len(stream))
	}
	if body, err = w.raw(t).Get().AbsPath(group+"/talosmachines").SetHeader("Accept", "application/vnd.kubernetes.protobuf,application/json").DoRaw(ctx); err != nil || !strings.HasPrefix(string(body), "{") {
		t.Errorf("a client that likes protobuf better: %v, %.60q", err, body)
	}
}

func TestFieldValidation(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 1), testContext(t)
	body := []byte(`{"spec":{"locked":true,"lockd":true}}`)
	patch := func(validation string) error {
		_, err := w.admin.IchorV1alpha1().TalosMachines().Patch(ctx, machineUUID(0), types.MergePatchType, body, metav1.PatchOptions{FieldValidation: validation})
		return err
	}
	if err := patch("Strict"); !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "lockd") {
		t.Errorf("strict: %v, want a refusal that names the field", err)
	}
	if err := patch("Warn"); err != nil {
		t.Errorf("warn: %v", err)
	}
}

func TestStrategicMergePatchesAreServedForNoKind(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 1), testContext(t)
	for _, path := range []string{"talosclusters/prod", "talosclusters/prod/status", "talosmachines/" + machineUUID(0), "talosmachines/" + machineUUID(0) + "/approval", "talosmachines/" + machineUUID(0) + "/status"} {
		var code int
		err := w.raw(t).Patch(types.StrategicMergePatchType).AbsPath(group + "/" + path).Body([]byte(`{}`)).Do(ctx).StatusCode(&code).Error()
		if code != http.StatusUnsupportedMediaType || !apierrors.IsUnsupportedMediaType(err) {
			t.Errorf("%s: %d, %v; want a 415", path, code, err)
		}
	}
	for _, path := range []string{"/openapi/v2", "/openapi/v3" + group} {
		document, err := w.raw(t).Get().AbsPath(path).DoRaw(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(document); strings.Contains(text, "strategic-merge-patch") || !strings.Contains(text, "merge-patch+json") || !strings.Contains(text, "x-kubernetes-preserve-unknown-fields") {
			t.Errorf("%s: still offers strategic merge patches, or offers no patches at all", path)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 0), testContext(t)
	live, err := w.raw(t).Get().AbsPath("/livez").Param("verbose", "").DoRaw(ctx)
	if err != nil || strings.Contains(string(live), "etcd") {
		t.Errorf("liveness depends on etcd: %v\n%s", err, live)
	}
	ready, err := w.raw(t).Get().AbsPath("/readyz").Param("verbose", "").DoRaw(ctx)
	if err != nil || !strings.Contains(string(ready), "[+]etcd ok") {
		t.Errorf("readiness: %v\n%s", err, ready)
	}
}

func TestAnonymousGetsNothing(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 1), testContext(t)
	config := w.Config(0, "")
	config.BearerToken = ""
	client, err := rest.UnversionedRESTClientFor(&rest.Config{Host: config.Host, TLSClientConfig: config.TLSClientConfig, ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get().AbsPath(group + "/talosmachines").DoRaw(ctx); !apierrors.IsForbidden(err) {
		t.Errorf("anonymous: %v, want a 403", err)
	}
	if _, err := client.Get().AbsPath(group+"/talosmachines").SetHeader("X-Remote-User", "root").SetHeader("X-Remote-Group", "system:masters").DoRaw(ctx); !apierrors.IsForbidden(err) {
		t.Errorf("forged headers without the front proxy's certificate: %v, want a 403", err)
	}
	if _, err := w.Client(t, 0, harness.Viewer).IchorV1alpha1().TalosMachines().List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("viewer: %v", err)
	}
	if err := w.Client(t, 0, harness.Viewer).IchorV1alpha1().TalosMachines().Delete(ctx, machineUUID(0), metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deletion by a viewer: %v, want a 403", err)
	}
}
