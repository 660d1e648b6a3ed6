// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"maesh.dev/ichor/test/apiserver/harness"
)

// shared is a list that two managers have an entry each in: one and two, as JSON. Changed is one with a field changed;
// empty for sets, whose entries have none.
type shared struct{ one, changed, two string }

// sharedConditions fits every kind.
var sharedConditions = shared{
	`{"type":"One","status":"True","reason":"A","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`,
	`{"type":"One","status":"True","reason":"B","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`,
	`{"type":"Two","status":"True","reason":"A","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`,
}

// lists are the lists that are maps or sets, by kind and path.
var lists = map[string]shared{
	"TalosCluster spec.discovery.addresses":          {`"10.0.7.1"`, ``, `"10.0.7.2"`},
	"TalosCluster spec.discovery.subnets":            {`{"cidr":"10.7.0.0/24"}`, ``, `{"cidr":"10.8.0.0/24"}`},
	"TalosCluster status.discovery.hosts":            {`{"address":"10.0.0.1","class":"NotTalos"}`, `{"address":"10.0.0.1","class":"Unreachable"}`, `{"address":"10.0.0.2","class":"NotTalos"}`},
	"TalosCluster status.etcdMembers":                {`{"id":"1a","hostname":"a"}`, `{"id":"1a","hostname":"b"}`, `{"id":"2b","hostname":"a"}`},
	"TalosCluster status.quarantined":                {`{"machineUID":"a","name":"a","at":"2026-01-01T00:00:00Z","reason":"A"}`, `{"machineUID":"a","name":"a","at":"2026-01-01T00:00:00Z","reason":"B"}`, `{"machineUID":"b","name":"b","at":"2026-01-01T00:00:00Z","reason":"A"}`},
	"TalosMachine status.config.drift":               {`{"document":"v1alpha1","path":"a","want":"1"}`, `{"document":"v1alpha1","path":"a","want":"2"}`, `{"document":"v1alpha1","path":"b","want":"1"}`},
	"TalosMachine status.config.patches":             {`{"name":"a","generation":1}`, `{"name":"a","generation":2}`, `{"name":"b","generation":1}`},
	"TalosMachine status.config.maskedFields":        {`"v1alpha1#/a"`, ``, `"v1alpha1#/b"`},
	"TalosMachine status.inventory.disks":            {`{"device":"/dev/sda","serial":"A"}`, `{"device":"/dev/sda","serial":"B"}`, `{"device":"/dev/sdb","serial":"A"}`},
	"TalosMachine status.inventory.links":            {`{"name":"eth0","up":true}`, `{"name":"eth0","mac":"02:00:5e:00:53:01","up":false}`, `{"name":"eth1","up":true}`},
	"TalosConfigPatch spec.documents":                {`{"apiVersion":"v1alpha1","kind":"UserVolumeConfig","name":"less","provisioning":{"minSize":"2GiB"}}`, ``, `{"apiVersion":"v1alpha1","kind":"UserVolumeConfig","name":"more","provisioning":{"minSize":"1GiB"}}`},
	"TalosConfigPatch spec.secretValues":             {`{"path":"/machine/env/A","secretKeyRef":{"name":"a","key":"a"}}`, `{"path":"/machine/env/A","secretKeyRef":{"name":"b","key":"a"}}`, `{"path":"/machine/env/B","secretKeyRef":{"name":"a","key":"a"}}`},
	"TalosConfigPatch spec.target.machineNames":      {`"4c4c4544-0051-3610-8052-b4c04f4c0001"`, ``, `"4c4c4544-0051-3610-8052-b4c04f4c0002"`},
	"TalosConfigPatch status.refusals":               {`{"machine":"a","reason":"A"}`, `{"machine":"a","reason":"B"}`, `{"machine":"b","reason":"A"}`},
	"TalosOperation status.machines":                 {`{"name":"a","step":"Drain"}`, `{"name":"a","step":"Reboot"}`, `{"name":"b","step":"Drain"}`},
	"TalosOperation status.plan.machines":            {`{"name":"a","steps":["Drain"]}`, `{"name":"a","steps":["Reboot"]}`, `{"name":"b","steps":["Drain"]}`},
	"TalosOperation status.plan.checks":              {`{"name":"a","result":"Passed"}`, `{"name":"a","result":"Warned"}`, `{"name":"b","result":"Passed"}`},
	"TalosEtcdBackup spec.encryption.age.recipients": {`"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"`, ``, `"age1lggyhqrw2nlhcxprm67z43rta597azn8gknawjehu9d9dl0jq3yqqvfafg"`},
	"TalosEtcdBackup status.backups":                 {`{"key":"a","at":"2026-01-01T00:00:00Z","revision":1}`, `{"key":"a","at":"2026-01-01T00:00:00Z","revision":2}`, `{"key":"b","at":"2026-01-01T00:00:00Z","revision":1}`},
}

// unshared are lists that nobody shares, and why.
var unshared = map[string]string{
	"TalosCluster status.controlPlaneSlots":   "the server's own",
	"TalosMachine spec.identity.macAddresses": "can't be changed",
	"TalosOperation spec.gates":               "can't be changed",
	"TalosOperation spec.machines.names":      "can't be changed",
}

// around is what else an object needs where the list is.
var around = map[string]string{
	"TalosOperation status.plan.machines": "status.plan.at", "TalosOperation status.plan.checks": "status.plan.at",
	"TalosOperation status.plan.risks": "status.plan.at",
}

func TestTwoManagersOfEveryList(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 0), testContext(t)
	client := w.dynamic(t, harness.Admin)
	if _, err := of(client, "TalosCluster").Apply(ctx, "prod", example(t, "TalosCluster"), metav1.ApplyOptions{FieldManager: "base", Force: true}); err != nil {
		t.Fatal(err)
	}
	for kind := range resources {
		if kind == "TalosCluster" {
			continue
		}
		if _, err := of(client, kind).Create(ctx, example(t, kind), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	found := w.listsOf(t)
	for _, list := range slices.Sorted(maps.Keys(found)) {
		kind, path, _ := strings.Cut(list, " ")
		entries, known := lists[list]
		if path == "status.conditions" {
			entries, known = sharedConditions, true
		}
		switch {
		case unshared[list] != "":
		case !known:
			t.Errorf("%s is a list of type %s, and nothing is known of how two managers share it; add it to the table", list, found[list])
		default:
			t.Run(list, func(t *testing.T) {
				m := &managers{t: t, client: of(client, kind), kind: kind, path: path, name: example(t, kind).GetName()}
				m.share(entries)
			})
		}
	}
	for list := range lists {
		if found[list] == "" {
			t.Errorf("%s is in the table and not served", list)
		}
	}
}

type managers struct {
	t                *testing.T
	client           dynamic.ResourceInterface
	kind, path, name string
}

// apply applies nothing but the list, with the entries.
func (m *managers) apply(manager string, force bool, entries ...string) (*unstructured.Unstructured, error) {
	m.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "ichor.maesh.dev/v1alpha1", "kind": m.kind, "metadata": map[string]any{"name": m.name}}}
	if len(entries) > 0 {
		var items []any
		if err := json.Unmarshal([]byte("["+strings.Join(entries, ",")+"]"), &items); err != nil {
			m.t.Fatal(err)
		}
		set(m.t, object, m.path, items)
		if also := around[m.kind+" "+m.path]; also != "" {
			set(m.t, object, also, "2026-01-01T00:00:00Z")
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		m.t.Fatal(err)
	}
	var door []string
	if strings.HasPrefix(m.path, "status.") {
		door = []string{"status"}
	}
	return m.client.Patch(m.t.Context(), m.name, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: manager, Force: &force}, door...)
}

// must applies and returns the list's entries as JSON.
func (m *managers) must(manager string, force bool, entries ...string) string {
	m.t.Helper()
	out, err := m.apply(manager, force, entries...)
	if err != nil {
		m.t.Fatalf("%s applies %v: %v", manager, entries, err)
	}
	items, _, err := unstructured.NestedFieldNoCopy(out.Object, strings.Split(m.path, ".")...)
	if err != nil {
		m.t.Fatal(err)
	}
	text, err := json.Marshal(items)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}

// has tells whether a list has an entry with all that is in the wanted one.
func (m *managers) has(list, entry string) bool {
	m.t.Helper()
	var items []any
	var wanted any
	if err := json.Unmarshal([]byte(list), &items); err != nil {
		m.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(entry), &wanted); err != nil {
		m.t.Fatal(err)
	}
	return slices.ContainsFunc(items, func(item any) bool { return within(wanted, item) })
}

func within(wanted, item any) bool {
	fields, ok := wanted.(map[string]any)
	if !ok {
		a, errA := json.Marshal(wanted)
		b, errB := json.Marshal(item)
		return errA == nil && errB == nil && string(a) == string(b)
	}
	of, ok := item.(map[string]any)
	for name, value := range fields {
		if text, isText := value.(string); value != false && (!isText || text != "") && !within(value, of[name]) {
			return false
		}
	}
	return ok
}

func (m *managers) share(e shared) {
	m.t.Helper()
	m.must("one", false, e.one)
	both := m.must("two", false, e.two)
	if !m.has(both, e.one) || !m.has(both, e.two) {
		m.t.Fatalf("after both applied an entry each, the list is %s", both)
	}
	if e.changed != "" {
		_, err := m.apply("two", false, e.two, e.changed)
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `"one"`) {
			m.t.Errorf("the second manager changes the first one's entry: %v, want a 409 that names the first", err)
		}
		if forced := m.must("two", true, e.two, e.changed); !m.has(forced, e.changed) {
			m.t.Errorf("the second manager takes the entry over, and the list is %s", forced)
		}
		if _, err := m.apply("one", false, e.one); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `"two"`) {
			m.t.Errorf("the first manager changes it back: %v, want a 409 that names the second", err)
		}
		m.must("one", true, e.one)
		m.must("two", false, e.two)
	}
	if left := m.must("one", false); m.has(left, e.one) || !m.has(left, e.two) {
		m.t.Errorf("the first manager gave its entry up, and the list is %s", left)
	}
	if left := m.must("two", false); left != "null" && m.has(left, e.two) {
		m.t.Errorf("the second manager gave its entry up, and the list is %s", left)
	}
}

// listsOf are the lists of all kinds that are maps or sets, with their types, from the served schema. Lists within
// entries of lists are left out: they are reached by these.
func (w *world) listsOf(t *testing.T) map[string]string {
	t.Helper()
	body, err := w.raw(t).Get().AbsPath("/openapi/v3" + group).DoRaw(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Components struct{ Schemas map[string]schema }
	}
	if err := json.Unmarshal(body, &document); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	var walk func(kind, path string, s schema)
	walk = func(kind, path string, s schema) {
		for name, property := range s.Properties {
			at := strings.TrimPrefix(path+"."+name, ".")
			if at == "metadata" || at == "spec.machine" && kind == "TalosConfigPatch" || at == "spec.cluster" && kind == "TalosConfigPatch" {
				continue // Kubernetes' own, and Talos' own
			}
			p := property.resolve(document.Components.Schemas)
			if p.ListType == "map" || p.ListType == "set" {
				found[kind+" "+at] = p.ListType
			}
			if p.Type == "array" && p.ListType == "" && !strings.Contains(at, "elector") {
				t.Errorf("%s %s is a list that doesn't say how it is merged", kind, at)
			}
			walk(kind, at, p)
		}
	}
	for name, s := range document.Components.Schemas {
		kind := name[strings.LastIndex(name, ".")+1:]
		if resources[kind] != "" {
			walk(kind, "", s)
		}
	}
	return found
}

// A list without keys is one value: whoever writes it writes all of it.
func TestAtomicListsAreReplacedWhole(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	w, ctx := &world{Env: env}, testContext(t)
	client := w.dynamic(t, harness.Admin)
	for kind, tc := range map[string]struct{ path, one, two string }{
		"TalosMachine":           {"status.addresses", `"10.0.0.1"`, `"10.0.0.2"`},
		"TalosOperation":         {"status.plan.risks", `"a"`, `"b"`},
		"MachineReclaim":         {"status.willWipe", `{"device":"/dev/sda","size":"1Gi"}`, `{"device":"/dev/sdb","size":"1Gi"}`},
		"TalosCredentialRequest": {"status.endpoints", `"10.0.0.1"`, `"10.0.0.2"`},
	} {
		if _, err := of(client, kind).Create(ctx, example(t, kind), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		m := &managers{t: t, client: of(client, kind), kind: kind, path: tc.path, name: example(t, kind).GetName()}
		m.must("one", false, tc.one)
		if _, err := m.apply("two", false, tc.two); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `"one"`) {
			t.Errorf("%s %s: %v, want a 409 that names the first manager", kind, tc.path, err)
		}
		if got := m.must("two", true, tc.two); m.has(got, tc.one) || !m.has(got, tc.two) {
			t.Errorf("%s %s: replaced by force, it is %s", kind, tc.path, got)
		}
	}
}
