// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bytes"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"maesh.dev/ichor/test/apiserver/harness"
)

const (
	protobuf  = "application/vnd.kubernetes.protobuf"
	jsonType  = "application/json"
	asPartial = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	asList    = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	tableV1   = ";as=Table;g=meta.k8s.io;v=v1"
)

// TestWhatClientsAcceptOfEveryKind asks as client-go, the garbage collector, metadata informers and kubectl ask.
func TestWhatClientsAcceptOfEveryKind(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	w, ctx := &world{Env: env, admin: env.Client(t, 0, harness.Admin)}, testContext(t)
	client := w.dynamic(t, harness.Admin)
	for kind, resource := range resources {
		object := example(t, kind)
		if _, err := of(client, kind).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		one, all := group+"/"+resource+"/"+object.GetName(), group+"/"+resource
		for accept, want := range map[string]struct{ get, list string }{
			protobuf + "," + jsonType:                                {kind, kind + "List"},
			jsonType + asPartial + "," + jsonType:                    {"PartialObjectMetadata", ""},
			jsonType + asList + "," + jsonType:                       {"", "PartialObjectMetadataList"},
			jsonType + tableV1 + "," + jsonType:                      {"Table", "Table"},
			protobuf + tableV1 + "," + jsonType + tableV1:            {"Table", "Table"},
			protobuf + asPartial + "," + jsonType + asPartial:        {"k8s", ""},
			protobuf + asList + "," + jsonType + asList:              {"", "k8s"},
			"application/yaml," + protobuf + "," + jsonType:          {kind, kind + "List"},
			protobuf + ";q=1.0," + jsonType + ";q=0.9, */*;q=0.1":    {kind, kind + "List"},
			protobuf + ";stream=watch," + jsonType + ";stream=watch": {kind, kind + "List"},
		} {
			for path, wanted := range map[string]string{one: want.get, all: want.list} {
				if wanted == "" {
					continue
				}
				body, err := w.raw(t).Get().AbsPath(path).SetHeader("Accept", accept).DoRaw(ctx)
				found := strings.Contains(string(body), `"kind":"`+wanted+`"`) || strings.Contains(string(body), "kind: "+wanted)
				if wanted == "k8s" {
					found = bytes.HasPrefix(body, []byte("k8s\x00"))
				}
				if err != nil || !found {
					t.Errorf("GET %s, accepting %s: %v, want a %s\n%.200q", path, accept, err, wanted, body)
				}
			}
		}
		for _, accept := range []string{protobuf + "," + jsonType, jsonType + asPartial, protobuf + asPartial + "," + jsonType + asPartial, jsonType + tableV1, protobuf + ";stream=watch," + jsonType} {
			body, err := w.raw(t).Get().AbsPath(all).Param("watch", "1").Param("timeoutSeconds", "1").SetHeader("Accept", accept).DoRaw(ctx)
			if err != nil || !bytes.Contains(body, []byte("ADDED")) {
				t.Errorf("watch of %s, accepting %s: %v\n%.200q", resource, accept, err, body)
			}
		}
	}
}

// second is another object of the kind beside its example; nil if there can be one only.
func second(t *testing.T, kind string) *unstructured.Unstructured {
	t.Helper()
	object := example(t, kind)
	switch kind {
	case "TalosCluster", "IchorInstallation":
		return nil
	case "TalosMachine":
		set(t, object, "spec.identity", map[string]any{"uuid": machineUUID(1), "serialNumber": "SN1", "macAddresses": []any{machineMAC(1)}})
		set(t, object, "spec.address", "10.0.0.12")
		object.SetName(machineUUID(1))
	default:
		object.SetName("second")
	}
	return object
}

func TestListsAndWatchesOfEveryKind(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	w, ctx := &world{Env: env, admin: env.Client(t, 0, harness.Admin)}, testContext(t)
	client := w.dynamic(t, harness.Admin)
	for kind, resource := range resources {
		objects := []*unstructured.Unstructured{example(t, kind)}
		if other := second(t, kind); other != nil {
			objects = append(objects, other)
		}
		var first string
		for _, object := range objects {
			made, err := of(client, kind).Create(ctx, object, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if first == "" {
				first = made.GetResourceVersion()
			}
		}
		list := func(options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
			return of(client, kind).List(ctx, options)
		}
		// Pages.
		var names []string
		options := metav1.ListOptions{Limit: 1}
		for {
			page, err := list(options)
			if err != nil || len(page.Items) > 1 {
				t.Fatalf("%s: page: %v, %v", kind, page, err)
			}
			for _, item := range page.Items {
				names = append(names, item.GetName())
			}
			if options.Continue = page.GetContinue(); options.Continue == "" {
				break
			}
			if left := page.GetRemainingItemCount(); left == nil || *left != 1 {
				t.Errorf("%s: one page of two, and %v remain", kind, left)
			}
		}
		if len(names) != len(objects) {
			t.Errorf("%s: pages of %v, want %d objects", kind, names, len(objects))
		}
		if _, err := list(metav1.ListOptions{Limit: 1, Continue: "forged"}); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: a forged continue: %v, want a 400", kind, err)
		}
		// Versions.
		for match, want := range map[metav1.ResourceVersionMatch]int{metav1.ResourceVersionMatchExact: 1, metav1.ResourceVersionMatchNotOlderThan: len(objects)} {
			then, err := list(metav1.ListOptions{ResourceVersion: first, ResourceVersionMatch: match})
			if err != nil || len(then.Items) != want || match == metav1.ResourceVersionMatchExact && then.GetResourceVersion() != first {
				t.Errorf("%s at version %s, %s: %v, %v, want %d", kind, first, match, then, err, want)
			}
		}
		if now, err := list(metav1.ListOptions{ResourceVersion: "0"}); err != nil || now.GetResourceVersion() == "" {
			t.Errorf("%s from the cache: %v, %v", kind, now, err)
		}
		if _, err := list(metav1.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact}); !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
			t.Errorf("%s: a match without a version: %v, want a refusal", kind, err)
		}
		// What is too old is gone: 410, from which clients begin anew.
		gone := w.raw(t).Get().AbsPath(group, resource).Param("watch", "1").Param("resourceVersion", "1").Param("timeoutSeconds", "5").Do(ctx)
		body, err := gone.Raw()
		if !bytes.Contains(body, []byte(`"code":410`)) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			t.Errorf("%s: a watch from the first version: %v, %.300q, want a 410", kind, err, body)
		}
		w.streams(t, kind, len(objects))
	}
}

// streams watches as a reflector of today does: the objects first, then a bookmark that says that these were all, then
// what happens.
func (w *world) streams(t *testing.T, kind string, count int) {
	t.Helper()
	ctx, client := testContext(t), w.dynamic(t, harness.Admin)
	initial := true
	watcher, err := of(client, kind).Watch(ctx, metav1.ListOptions{
		SendInitialEvents: &initial, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		t.Errorf("%s: streamed list: %v", kind, err)
		return
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			t.Errorf("%s: streamed list: %v", kind, event.Object)
			return
		}
		switch event.Type {
		case watch.Added:
			count--
			continue
		case watch.Bookmark:
			if object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" || count != 0 || object.GetResourceVersion() == "" {
				t.Errorf("%s: a bookmark with %d objects to come: %v", kind, count, object)
			}
		default:
			t.Errorf("%s: %s before the bookmark", kind, event.Type)
		}
		break
	}
	if _, err := of(client, kind).Patch(ctx, example(t, kind).GetName(), "application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for event := range watcher.ResultChan() {
		if event.Type == watch.Bookmark {
			continue
		}
		if event.Type != watch.Modified {
			t.Errorf("%s: the change is seen as %s", kind, event.Type)
		}
		return
	}
	t.Errorf("%s: the watch ended before the change was seen", kind)
}
