// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/apiserver/harness"
)

// selectors are the field selectors of each kind.
var selectors = map[string][]string{
	"TalosCluster": v1alpha1.ClusterFieldLabels, "TalosMachine": v1alpha1.MachineFieldLabels, "TalosConfigPatch": v1alpha1.PatchFieldLabels,
	"TalosOperation": v1alpha1.OperationFieldLabels, "TalosEtcdBackup": v1alpha1.BackupFieldLabels, "TalosStorage": v1alpha1.StorageFieldLabels,
	"MachineReclaim": v1alpha1.ReclaimFieldLabels, "TalosCredentialRequest": v1alpha1.CredentialRequestFieldLabels,
	"IchorInstallation": v1alpha1.InstallationFieldLabels, "IchorUser": v1alpha1.UserFieldLabels,
}

// doors are the subresources of each kind besides status, with a merge patch that each takes.
var doors = map[string]map[string]string{
	"TalosOperation": {"resume": `{}`, "cancel": `{}`},
	"TalosMachine":   {"approval": `{"spec":{"approvalState":"rejected"}}`, "identity": "", "finalize": ""},
	"TalosCluster":   {"finalize": ""},
	"IchorUser":      {"certificate": "", "password": ""},
}

// views are subresources that show something besides the object, with the kind of their answers and their verbs;
// config_test.go and history_test.go read them.
var views = map[string]struct {
	kind  string
	verbs []string
}{
	"talosmachines/config":  {"TalosMachineConfig", []string{"get"}},
	"talosmachines/drift":   {"TalosMachineDrift", []string{"get"}},
	"talosmachines/log":     {"TalosMachine", []string{"get"}},
	"talosmachines/history": {"TalosMachineHistory", []string{"create", "get"}},
}

// questions are subresources that answer and store nothing, with the kind of both; preview_test.go asks them.
var questions = map[string]string{"talosconfigpatches/preview": "TalosConfigPatchPreview"}

// TestKubectlStoriesOfEveryKind does with an object of each kind what people do with objects.
func TestKubectlStoriesOfEveryKind(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	w := &world{Env: env, admin: env.Client(t, 0, harness.Admin)}
	served, err := w.admin.Discovery().ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range served.APIResources {
		if view := views[resource.Name]; view.kind == resource.Kind && slices.Equal(resource.Verbs, view.verbs) {
			continue
		}
		if questions[resource.Name] == resource.Kind && slices.Equal(resource.Verbs, []string{"create"}) {
			continue
		}
		name, door, sub := strings.Cut(resource.Name, "/")
		if resources[resource.Kind] != name {
			t.Errorf("resource %s of kind %s is served and has no stories; add it to the tables", resource.Name, resource.Kind)
		}
		if _, known := doors[resource.Kind][door]; sub && door != "status" && !known {
			t.Errorf("subresource %s is served and in no story; add it to the table", resource.Name)
		}
	}
	k := w.kubectl(t)
	for _, kind := range slices.Sorted(maps.Keys(resources)) {
		t.Run(kind, func(t *testing.T) {
			s := &story{kubectl: &kubectl{t, k.program, k.kubeconfig}, w: w, kind: kind, object: example(t, kind)}
			s.file = filepath.Join(t.TempDir(), "object.json")
			s.target = resources[kind] + "/" + s.object.GetName()
			s.write(s.object)
			s.dryRuns()
			s.applies()
			s.selects()
			s.validates()
			s.edits()
			s.observes()
			s.goes()
		})
	}
}

type story struct {
	*kubectl
	w            *world
	kind         string
	object       *unstructured.Unstructured
	file, target string
}

func (s *story) write(object any) {
	s.t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(s.file, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// now is the object as it is. What needn't be kubectl isn't: starting it takes a third of a second.
func (s *story) now() *unstructured.Unstructured {
	s.t.Helper()
	object, err := of(s.w.dynamic(s.t, harness.Admin), s.kind).Get(testContext(s.t), s.object.GetName(), metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return object
}

func (s *story) version() string {
	s.t.Helper()
	return s.now().GetResourceVersion()
}

// keys are all keys in etcd with their versions.
func (s *story) keys() string {
	s.t.Helper()
	all, err := s.w.Etcd.Get(testContext(s.t), s.w.Prefix+"/", clientv3.WithPrefix())
	if err != nil {
		s.t.Fatal(err)
	}
	var out strings.Builder
	for _, kv := range all.Kvs {
		out.WriteString(string(kv.Key) + "=" + string(kv.Value) + "\n")
	}
	return out.String()
}

// unchanged runs commands that must leave no trace in etcd.
func (s *story) unchanged(commands ...[]string) {
	s.t.Helper()
	before := s.keys()
	for _, args := range commands {
		s.must(append(args, "--dry-run=server")...)
		if after := s.keys(); after != before {
			s.t.Fatalf("kubectl %v as a dry run changed what is stored:\n%s\n%s", args, before, after)
		}
	}
}

func (s *story) dryRuns() {
	s.unchanged([]string{"create", "-f", s.file}, []string{"apply", "--server-side", "-f", s.file})
	s.must("create", "-f", s.file)
	dry := [][]string{
		{"label", s.target, "dry=run"}, {"patch", s.target, "--type=merge", "-p", `{"metadata":{"labels":{"a":"b"}}}`},
		{"patch", s.target, "--subresource=status", "--type=merge", "-p", `{"status":{"conditions":[]}}`}, {"delete", s.target},
	}
	for door, body := range doors[s.kind] {
		if body != "" && s.kind != "TalosMachine" { // an approval says which version it was made from, see approval_test.go
			dry = append(dry, []string{"patch", s.target, "--subresource=" + door, "--type=merge", "-p", body})
		}
	}
	s.unchanged(dry...)
	s.goes()
}

func (s *story) applies() {
	s.must("apply", "-f", s.file)
	applied := s.version()
	s.must("apply", "-f", s.file)
	if again := s.version(); again != applied {
		s.t.Errorf("applied again, it went from version %s to %s", applied, again)
	}
	s.must("diff", "-f", s.file)
	s.must("apply", "--server-side", "--force-conflicts", "-f", s.file)
	version := s.version()
	if again := s.run("", "", "apply", "--server-side", "-f", s.file); again.status != 0 {
		s.t.Fatalf("applied again by the server: %s\nfields %v\nspec %v", again.err, s.now().GetManagedFields(), s.now().Object["spec"])
	}
	if again := s.version(); again != version {
		s.t.Errorf("applied again by the server, it went from version %s to %s", version, again)
	}
	s.must("diff", "--server-side", "-f", s.file)
	changed := s.object.DeepCopy()
	changed.SetLabels(map[string]string{"story": "changed"})
	s.write(changed)
	if d := s.run("", "", "diff", "--server-side", "-f", s.file); d.status != 1 || !strings.Contains(d.out, "story: changed") {
		s.t.Errorf("kubectl diff of a changed file: status %d\n%s%s", d.status, d.out, d.err)
	}
	s.write(s.object)
}

func (s *story) selects() {
	s.must("label", s.target, "story=yes")
	name := s.object.GetName()
	resource := resources[s.kind]
	if got := s.must("get", resource, "-l", "story=yes", "-o", "name"); !strings.Contains(got, name) {
		s.t.Errorf("a label selects %q", got)
	}
	if got := s.must("get", resource, "-l", "story=no", "-o", "name"); got != "" {
		s.t.Errorf("another label selects %q", got)
	}
	all := strings.Join(selectors[s.kind], "!=x-y-z,") + "!=x-y-z"
	if got := s.must("get", resource, "--field-selector", all, "--chunk-size=1", "-o", "name"); !strings.Contains(got, name) {
		s.t.Errorf("the selectors %s select %q", all, got)
	}
	s.refused(selectors[s.kind][len(selectors[s.kind])-1], "get", resource, "--field-selector", "spec.none=1")
}

// edits changes what may be changed of every object in every way there is.
func (s *story) edits() {
	s.must("annotate", s.target, "story=one")
	s.mustWith("sed -i s/story:.one/story:\\ two/", "", "edit", s.target)
	s.tells("two", "")
	s.must("patch", s.target, "--type=merge", "-p", `{"metadata":{"annotations":{"story":"three"}}}`)
	s.tells("three", "")
	s.must("patch", s.target, "--type=json", "-p", `[{"op":"replace","path":"/metadata/annotations/story","value":"four"}]`)
	s.tells("four", "")
	s.refused("accepted media types include", "patch", s.target, "--type=strategic", "-p", `{"metadata":{"annotations":{"story":"five"}}}`)
	whole := s.must("get", s.target, "-o", "yaml")
	s.mustWith("", strings.Replace(whole, "story: four", "story: six", 1), "replace", "-f", "-")
	s.tells("six", "")
	if stale := s.run("", whole, "replace", "-f", "-"); stale.status == 0 || !strings.Contains(stale.err, "Conflict") {
		s.t.Errorf("a stale object replaces a newer one: status %d %s%s", stale.status, stale.out, stale.err)
	}
}

// tells holds the object to what its annotation, and its condition Ready, should say.
func (s *story) tells(annotation, message string) {
	s.t.Helper()
	object := s.now()
	if got := object.GetAnnotations()["story"]; got != annotation {
		s.t.Errorf("the annotation is %q, want %q", got, annotation)
	}
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		s.t.Fatal(err)
	}
	got := ""
	for _, condition := range conditions {
		if c := condition.(map[string]any); c["type"] == "Ready" {
			got = c["message"].(string)
		}
	}
	if got != message {
		s.t.Errorf("the condition says %q, want %q", got, message)
	}
}

// observes writes the status as a controller does, and waits and watches for it as people do.
func (s *story) observes() {
	ctx, cancel := context.WithTimeout(s.t.Context(), kubectlFor)
	defer cancel()
	watching := s.command(ctx, "", "get", s.target, "-w", "-o", "jsonpath={.metadata.annotations.watched}{\"\\n\"}")
	lines, err := watching.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := watching.Start(); err != nil {
		s.t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = watching.Wait() // that it was ended
	}()
	scanner := bufio.NewScanner(lines)
	scanner.Scan() // the object as it is
	s.must("annotate", s.target, "watched=seen")
	for scanner.Scan() && scanner.Text() != "seen" {
	}
	if scanner.Text() != "seen" {
		s.t.Errorf("kubectl get -w never shows the change: %v", scanner.Err())
	}

	s.must("patch", s.target, "--subresource=status", "--type=merge", "-p",
		`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Told","message":"one","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
	s.must("wait", s.target, "--for=condition=Ready", "--timeout=1m")
	s.must("wait", s.target, "--for=jsonpath={.status.conditions[?(@.type=='Ready')].reason}=Told", "--timeout=1m")
	s.mustWith("sed -i s/message:.one/message:\\ two/", "", "edit", s.target, "--subresource=status")
	s.tells("six", "two")
	whole := s.must("get", s.target, "--subresource=status", "-o", "yaml")
	s.mustWith("", strings.Replace(whole, "message: two", "message: three", 1), "replace", "--subresource=status", "-f", "-")
	s.tells("six", "three")
	s.must("patch", s.target, "--type=merge", "-p", `{"status":{"conditions":[]}}`)
	s.tells("six", "three") // the main resource doesn't write the status
}

// validates sends fields that aren't there, and one twice.
func (s *story) validates() {
	wrong := s.object.DeepCopy()
	wrong.Object["spec"].(map[string]any)["noSuchField"] = "x"
	s.write(wrong)
	s.refused("noSuchField", "apply", "--validate=strict", "-f", s.file)
	if warned := s.run("", "", "apply", "--validate=warn", "-f", s.file); warned.status != 0 || !strings.Contains(warned.err, `unknown field "spec.noSuchField"`) {
		s.t.Errorf("with a warning: status %d\n%s%s", warned.status, warned.out, warned.err)
	}
	if quiet := s.run("", "", "apply", "--validate=ignore", "-f", s.file); quiet.status != 0 || strings.Contains(quiet.err, "noSuchField") {
		s.t.Errorf("without a word: status %d\n%s%s", quiet.status, quiet.out, quiet.err)
	}
	text, err := json.Marshal(s.object.Object["spec"])
	if err != nil {
		s.t.Fatal(err)
	}
	twice := `{"apiVersion":"ichor.maesh.dev/v1alpha1","kind":"` + s.kind + `","metadata":{"name":"` + s.object.GetName() + `"},"spec":` + string(text) + `,"spec":` + string(text) + `}`
	if again := s.run("", twice, "create", "--validate=strict", "--dry-run=server", "-f", "-"); again.status == 0 {
		s.t.Errorf("a field twice is taken: %s", again.out)
	}
	s.write(s.object)
}

// goes deletes the object; what has a finalizer of Ichor's is let go of as the controller does.
func (s *story) goes() {
	s.t.Helper()
	if _, held := doors[s.kind]["finalize"]; held {
		s.must("delete", s.target, "--wait=false")
		s.must("patch", s.target, "--subresource=finalize", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		s.must("wait", s.target, "--for=delete", "--timeout=1m")
	} else {
		s.must("delete", s.target, "--wait", "--timeout=1m")
	}
	s.refused("NotFound", "get", s.target)
}
