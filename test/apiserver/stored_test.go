// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/apiserver/harness"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// stored says under which key each served resource keeps the object of its golden file. The layout is frozen: a release
// that reads other keys or bytes loses what people have.
var stored = map[string]struct{ key, golden string }{
	"talosclusters":           {"/talosclusters/prod", "taloscluster.json"},
	"talosmachines":           {"/talosmachines/" + machineUUID(0), "talosmachine.json"},
	"talosconfigpatches":      {"/talosconfigpatches/storage-workers", "talosconfigpatch.json"},
	"talosoperations":         {"/talosoperations/talos-v1.14.6", "talosoperation.json"},
	"talosetcdbackups":        {"/talosetcdbackups/prod", "talosetcdbackup.json"},
	"talosstorages":           {"/talosstorages/minio", "talosstorage.json"},
	"machinereclaims":         {"/machinereclaims/old-worker", "machinereclaim.json"},
	"taloscredentialrequests": {"/taloscredentialrequests/alice-reader", "taloscredentialrequest.json"},
	"ichorinstallations":      {"/ichorinstallations/ichor", "ichorinstallation.json"},
	"ichorusers":              {"/ichorusers/alice", "ichoruser.json"},
}

// storedApart are the prefixes of what is stored and not served.
var storedApart = []string{"/ichoruserpasswords/", "/talosmachinehistories/"}

func TestStoredKeysAndBytes(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 1), testContext(t)
	approval := approve(w.machines[0], v1alpha1.RoleControlPlane)
	approval.Spec.Hostname, approval.Spec.NodeLabels = "cp-1", map[string]string{"rack": "1"}
	approval.Spec.Network = &v1alpha1.MachineNetwork{Interface: v1alpha1.InterfaceMatch{MAC: machineMAC(0)}, Addressing: v1alpha1.AddressingStatic, Addresses: []string{"10.9.0.11/24"}, Gateway: "10.9.0.1"}
	if _, err := w.approver.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, approval.Name, approval, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	history := rendered("machine:\n  type: controlplane\n", v1alpha1.ObjectGeneration{Name: "tuning", UID: "a", Generation: 3})
	for range 2 {
		if _, err := w.remember(ctx, approval.Name, history); err != nil {
			t.Fatal(err)
		}
		history.Revisions[0].Text += "  install: {}\n"
		history.Revisions[0].Hash = strings.Repeat("ab", 32)
	}
	client := w.dynamic(t, harness.Admin)
	for _, object := range examples(t) {
		if kind := object.GetKind(); kind == "TalosCluster" || kind == "TalosMachine" {
			continue
		}
		if _, err := of(client, object.GetKind()).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.raw(t).Put().AbsPath(group, "ichorusers/alice/password").SetHeader("Content-Type", "application/json").Body([]byte(`{"password":"correct horse battery staple"}`)).Do(ctx).Error(); err != nil {
		t.Fatal(err)
	}
	list, err := w.admin.Discovery().ServerResourcesForGroupVersion("ichor.maesh.dev/v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, resource := range list.APIResources {
		if strings.Contains(resource.Name, "/") {
			continue
		}
		want, ok := stored[resource.Name]
		if !ok {
			t.Errorf("resource %s has no golden file; add it to the table", resource.Name)
			continue
		}
		keys = append(keys, w.Prefix+want.key)
		got, err := w.Etcd.Get(ctx, w.Prefix+want.key)
		if err != nil || len(got.Kvs) != 1 {
			t.Errorf("%s: nothing under key %s: %v", resource.Name, want.key, err)
			continue
		}
		golden(t, want.golden, masked(t, got.Kvs[0].Value))
	}
	w.storedHistory(ctx, t, approval.UID)
	all, err := w.Etcd.Get(ctx, w.Prefix+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, kv := range all.Kvs {
		if key := strings.TrimPrefix(string(kv.Key), w.Prefix); slices.ContainsFunc(storedApart, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) || key == "/talosoperations/reboot-rack-1" {
			continue // named by a UID, and a second example of its kind
		}
		found = append(found, string(kv.Key))
	}
	slices.Sort(keys)
	if diff := cmp.Diff(keys, found); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

// storedHistory holds what is stored of a machine's second configuration to its golden file.
func (w *world) storedHistory(ctx context.Context, t *testing.T, machine types.UID) {
	t.Helper()
	want := []string{"/talosmachinehistories/" + string(machine) + "/0000000001", "/talosmachinehistories/" + string(machine) + "/0000000002"}
	if diff := cmp.Diff(want, w.revisionKeys(ctx, t)); diff != "" {
		t.Fatalf("keys of the history (-want +got):\n%s", diff)
	}
	var stored struct{ Text, Diff []byte }
	value := everyStored(ctx, t, w.Env)[want[1]]
	if err := json.Unmarshal(value, &stored); err != nil {
		t.Fatal(err)
	}
	// How gzip packs differs from one release of Go to the next.
	for what, packed := range map[string][]byte{"machine:\n  type: controlplane\n  install: {}\n": stored.Text, "+  install: {}\n": stored.Diff} {
		reader, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reader)
		if err != nil || !strings.HasSuffix(string(text), what) {
			t.Errorf("packed is %q, %v; want %q", text, err, what)
		}
	}
	text := masked(t, value)
	for name, packed := range map[string][]byte{"text": stored.Text, "diff": stored.Diff} {
		text = bytes.ReplaceAll(text, []byte(base64.StdEncoding.EncodeToString(packed)), []byte("<"+name+">"))
	}
	golden(t, "talosmachinehistory.json", bytes.ReplaceAll(text, []byte(machine), []byte("<machine>")))
}

// masked replaces what differs from run to run, and lays the JSON out for reading. Field managers are the clients' names
// and say nothing about the layout.
func masked(t *testing.T, text []byte) []byte {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatalf("stored bytes aren't JSON: %v", err)
	}
	meta := object["metadata"].(map[string]any)
	delete(meta, "managedFields")
	mask(object, "uid", "creationTimestamp", "at", "token", "machineUID", "clusterUID", "passwordChangedAt", "lastTransitionTime", "time")
	out, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(out, '\n')
}

func mask(value any, names ...string) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if text, ok := v[name].(string); ok && slices.Contains(names, name) && text != "" {
				v[name] = "<" + name + ">"
				continue
			}
			mask(v[name], names...)
		}
	case []any:
		for _, item := range v {
			mask(item, names...)
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", "stored", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run the test with -update", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
