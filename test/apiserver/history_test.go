// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/apiserver"
	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/registry/talosmachines"
	"maesh.dev/ichor/test/apiserver/harness"
)

// rendered is a history with one configuration, as the controller sends it.
func rendered(text string, patches ...v1alpha1.ObjectGeneration) *v1alpha1.TalosMachineHistory {
	return &v1alpha1.TalosMachineHistory{Revisions: []v1alpha1.ConfigRevision{{
		Hash: fmt.Sprintf("%x", sha256.Sum256([]byte(text))), Text: text,
		Inputs: v1alpha1.ConfigRevisionInputs{
			Cluster: v1alpha1.ObjectGeneration{Name: "prod", Generation: 1}, Patches: patches, ApprovedBy: harness.Approver,
			Versions: v1alpha1.SettledVersions{Talos: "v1.14.5", Kubernetes: "v1.36.6"},
		},
	}}}
}

// remember records a configuration as the controller does.
func (w *world) remember(ctx context.Context, name string, history *v1alpha1.TalosMachineHistory) (*v1alpha1.TalosMachineHistory, error) {
	return w.controller.IchorV1alpha1().TalosMachines().RecordHistory(ctx, name, history, metav1.CreateOptions{})
}

// history reads it as a viewer; revision 0 is all of it.
func (w *world) history(ctx context.Context, t *testing.T, name string, revision int64) (*v1alpha1.TalosMachineHistory, error) {
	t.Helper()
	var got v1alpha1.TalosMachineHistory
	request := w.Client(t, 0, harness.Viewer).IchorV1alpha1().RESTClient().Get().AbsPath(group + "/talosmachines/" + name + "/history")
	if revision != 0 {
		request = request.Param("revision", strconv.FormatInt(revision, 10))
	}
	return &got, request.Do(ctx).Into(&got)
}

// approved is the nth machine, approved as a worker.
func (w *world) approved(ctx context.Context, t *testing.T, n int) *v1alpha1.TalosMachine {
	t.Helper()
	m, err := w.approver.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, machineUUID(n), approve(w.machines[n], v1alpha1.RoleWorker), metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTheHistoryOfAMachine(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 1), testContext(t)
	name := machineUUID(0)
	if _, err := w.remember(ctx, name, rendered("a: 1\n")); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "isn't approved") {
		t.Errorf("of a machine that nobody approved: %v, want a 409", err)
	}
	w.approved(ctx, t, 0)
	if got, err := w.history(ctx, t, name, 0); err != nil || got.Name != name || len(got.Revisions) > 0 {
		t.Errorf("before anything was rendered: %+v, %v", got, err)
	}
	if _, err := w.remember(ctx, name, rendered("a: 1\nb: 2\n")); err != nil {
		t.Fatal(err)
	}
	before := everyStored(ctx, t, w.Env)
	if _, err := w.remember(ctx, name, rendered("a: 1\nb: 2\n")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, everyStored(ctx, t, w.Env)); diff != "" {
		t.Errorf("the same again is stored (-before +after):\n%s", diff)
	}
	patch := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: "tuning"}}
	patch.Spec.Target.ClusterRef.Name = "prod"
	patch.Spec.Machine = &v1alpha1.MachineSection{Raw: []byte(`{"sysctls":{"vm.swappiness":"1"}}`)}
	patch, err := w.admin.IchorV1alpha1().TalosConfigPatches().Create(ctx, patch, metav1.CreateOptions{FieldManager: "ichor-patch"})
	if err != nil {
		t.Fatal(err)
	}
	second := rendered("a: 1\nb: 3\n", v1alpha1.ObjectGeneration{Name: "tuning", UID: patch.UID, Generation: patch.Generation})
	second.Revisions[0].Inputs.ApprovedBy = "somebody else"
	if _, err := w.remember(ctx, name, second); err != nil {
		t.Fatal(err)
	}
	got, err := w.history(ctx, t, name, 0)
	if err != nil || len(got.Revisions) != 2 || got.Revisions[0].Revision != 2 || got.Revisions[1].Revision != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
	for _, revision := range got.Revisions {
		if revision.Text != "" || revision.Diff != "" || revision.Time.IsZero() || revision.Hash == "" {
			t.Errorf("in the list: %+v", revision)
		}
	}
	if causes := got.Revisions[1].Causes; len(causes) != 1 || causes[0].Kind != v1alpha1.CauseFirst {
		t.Errorf("the first one's causes are %+v", causes)
	}
	want := []v1alpha1.ConfigRevisionCause{
		{Kind: "TalosConfigPatch", Name: "tuning", Change: "Added", Generation: 1, Manager: "ichor-patch", Message: "patch tuning was added (generation 1), written by ichor-patch"},
		{Kind: "Approval", Change: "Changed", By: "somebody else", Message: "the machine was approved anew, by somebody else"},
	}
	if diff := cmp.Diff(want, got.Revisions[0].Causes); diff != "" {
		t.Errorf("causes (-want +got):\n%s", diff)
	}
	one, err := w.history(ctx, t, name, 2)
	if err != nil || len(one.Revisions) != 1 || one.Revisions[0].Text != "a: 1\nb: 3\n" {
		t.Fatalf("revision 2: %+v, %v", one, err)
	}
	if diff := one.Revisions[0].Diff; diff != "--- revision 1\n+++ revision 2\n@@ -1,2 +1,2 @@\n a: 1\n-b: 2\n+b: 3\n" {
		t.Errorf("its diff is\n%s", diff)
	}
}

func TestAMachineKeepsTenRevisions(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 2), testContext(t)
	name := machineUUID(0)
	w.approved(ctx, t, 0)
	other := w.approved(ctx, t, 1)
	if _, err := w.remember(ctx, other.Name, rendered("other: 1\n")); err != nil {
		t.Fatal(err)
	}
	for n := range 12 {
		if _, err := w.remember(ctx, name, rendered(fmt.Sprintf("a: %d\n", n))); err != nil {
			t.Fatal(err)
		}
	}
	got, err := w.history(ctx, t, name, 0)
	if err != nil || len(got.Revisions) != 10 || got.Revisions[0].Revision != 12 || got.Revisions[9].Revision != 3 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if keys := w.revisionKeys(ctx, t); len(keys) != 11 {
		t.Errorf("stored are %v", keys)
	}
	if _, err := w.history(ctx, t, name, 2); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "3 to 12 are") {
		t.Errorf("a revision that isn't kept: %v, want a 404 that says which are", err)
	}

	// With its machine goes its history, and another machine of the name has none of it.
	machines := w.approver.IchorV1alpha1().TalosMachines()
	if err := machines.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	leaving, err := machines.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	leaving.Finalizers = nil
	if _, err := w.controller.IchorV1alpha1().TalosMachines().Finalize(ctx, name, leaving, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if keys := w.revisionKeys(ctx, t); len(keys) != 1 || !strings.Contains(keys[0], string(other.UID)) {
		t.Errorf("after the machine is gone, stored are %v", keys)
	}
	w.machines[0] = w.discover(t, 0)
	if got, err := w.history(ctx, t, name, 0); err != nil || len(got.Revisions) > 0 || got.UID == leaving.UID {
		t.Errorf("the history of another machine of the name: %+v, %v", got, err)
	}
}

func (w *world) revisionKeys(ctx context.Context, t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(everyStored(ctx, t, w.Env))), func(key string) bool {
		return !strings.HasPrefix(key, "/"+talosmachines.HistoryResource+"/")
	})
}

// Whoever records the same at once, through whichever server, records it once.
func TestReplicasNeverRecordARevisionTwice(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 1, harness.Servers(2)), testContext(t)
	name := w.approved(ctx, t, 0).Name
	const writers, rounds = 6, 5
	for round := range rounds {
		var running sync.WaitGroup
		for n := range writers {
			client := w.Client(t, n%2, harness.Controller).IchorV1alpha1().TalosMachines()
			running.Go(func() {
				_, err := client.RecordHistory(ctx, name, rendered(fmt.Sprintf("round: %d\n", round)), metav1.CreateOptions{})
				if err != nil && !apierrors.IsConflict(err) {
					t.Errorf("record: %v", err)
				}
			})
		}
		running.Wait()
	}
	got, err := w.history(ctx, t, name, 0)
	if err != nil || len(got.Revisions) != rounds || got.Revisions[0].Revision != rounds {
		t.Errorf("%d revisions of %d: %+v, %v", len(got.Revisions), rounds, got, err)
	}
}

func TestWhatIsNoRevisionIsRefused(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 1), testContext(t)
	m := w.approved(ctx, t, 0)
	change := func(change func(*v1alpha1.TalosMachineHistory)) *v1alpha1.TalosMachineHistory {
		history := rendered("a: 1\n")
		change(history)
		return history
	}
	first := func(change func(*v1alpha1.ConfigRevision)) *v1alpha1.TalosMachineHistory {
		history := rendered("a: 1\n")
		change(&history.Revisions[0])
		return history
	}
	for what, tc := range map[string]struct {
		name    string
		history *v1alpha1.TalosMachineHistory
		want    func(error) bool
		words   string
	}{
		"none":           {history: &v1alpha1.TalosMachineHistory{}, want: apierrors.IsInvalid, words: "exactly one"},
		"two":            {history: change(func(h *v1alpha1.TalosMachineHistory) { h.Revisions = append(h.Revisions, h.Revisions[0]) }), want: apierrors.IsInvalid, words: "exactly one"},
		"no hash":        {history: first(func(r *v1alpha1.ConfigRevision) { r.Hash = "x" }), want: apierrors.IsInvalid, words: "revisions[0].hash"},
		"no text":        {history: first(func(r *v1alpha1.ConfigRevision) { r.Text = "" }), want: apierrors.IsInvalid, words: "textOmitted"},
		"text twice":     {history: first(func(r *v1alpha1.ConfigRevision) { r.TextOmitted = "no" }), want: apierrors.IsInvalid, words: "textOmitted"},
		"a large text":   {history: first(func(r *v1alpha1.ConfigRevision) { r.Text = strings.Repeat("x", 512<<10+1) }), want: apierrors.IsRequestEntityTooLargeError, words: "524288 bytes"},
		"a huge text":    {history: first(func(r *v1alpha1.ConfigRevision) { r.Text = strings.Repeat("x", 4<<20) }), want: apierrors.IsRequestEntityTooLargeError, words: "limit"},
		"a long reason":  {history: first(func(r *v1alpha1.ConfigRevision) { r.Text, r.TextOmitted = "", strings.Repeat("x", 300) }), want: apierrors.IsInvalid, words: "textOmitted"},
		"a patch twice":  {history: rendered("a: 1\n", v1alpha1.ObjectGeneration{Name: "a"}, v1alpha1.ObjectGeneration{Name: "a"}), want: apierrors.IsInvalid, words: "patches[1].name"},
		"too many":       {history: rendered("a: 1\n", make([]v1alpha1.ObjectGeneration, 1001)...), want: apierrors.IsInvalid, words: "at most 1000"},
		"a long name":    {history: rendered("a: 1\n", v1alpha1.ObjectGeneration{Name: strings.Repeat("a", 254)}), want: apierrors.IsInvalid, words: "patches[0].name"},
		"a long user":    {history: first(func(r *v1alpha1.ConfigRevision) { r.Inputs.ApprovedBy = strings.Repeat("a", 1025) }), want: apierrors.IsInvalid, words: "approvedBy"},
		"another's":      {history: change(func(h *v1alpha1.TalosMachineHistory) { h.Name = "another" }), want: apierrors.IsBadRequest, words: "another"},
		"an old version": {history: change(func(h *v1alpha1.TalosMachineHistory) { h.ResourceVersion = "1" }), want: apierrors.IsConflict, words: "has changed"},
		"nobody's":       {name: "nobody", history: rendered("a: 1\n"), want: apierrors.IsNotFound, words: "nobody"},
	} {
		name := m.Name
		if tc.name != "" {
			name = tc.name
		}
		if _, err := w.remember(ctx, name, tc.history); !tc.want(err) || !strings.Contains(err.Error(), tc.words) {
			t.Errorf("%s: %.300v, want it to speak of %q", what, err, tc.words)
		}
	}
	client := w.controller.IchorV1alpha1().RESTClient()
	for what, body := range map[string]string{"no JSON": "{", "another kind": `{"apiVersion":"ichor.maesh.dev/v1alpha1","kind":"TalosMachine"}`, "a number": `{"revisions":7}`} {
		if err := client.Post().AbsPath(group, "talosmachines", m.Name, "history").SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(ctx).Error(); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v, want a 400", what, err)
		}
	}
	var code int
	viewer := w.Client(t, 0, harness.Viewer).IchorV1alpha1().RESTClient()
	if err := viewer.Get().AbsPath(group, "talosmachines", m.Name, "history").Param("revision", "new").Do(ctx).StatusCode(&code).Error(); code != http.StatusBadRequest {
		t.Errorf("a revision that is no number: %d, %v", code, err)
	}
	for _, user := range []string{harness.Viewer, "nobody"} {
		if _, err := w.Client(t, 0, user).IchorV1alpha1().TalosMachines().RecordHistory(ctx, m.Name, rendered("a: 1\n"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s writes: %v, want a 403", user, err)
		}
	}
	if err := w.Client(t, 0, "nobody").IchorV1alpha1().RESTClient().Get().AbsPath(group, "talosmachines", m.Name, "history").Do(ctx).Error(); !apierrors.IsForbidden(err) {
		t.Errorf("nobody reads: %v, want a 403", err)
	}
	dry, err := w.controller.IchorV1alpha1().TalosMachines().RecordHistory(ctx, m.Name, rendered("a: 1\n"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || len(dry.Revisions) != 1 {
		t.Errorf("a dry run: %+v, %v", dry, err)
	}
	if keys := w.revisionKeys(ctx, t); len(keys) > 0 {
		t.Errorf("what was refused, or tried, is stored: %v", keys)
	}
}

// What a server left behind that ended in the middle of a deletion is found.
func TestHistoriesOfMachinesThatAreGoneAreSwept(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 1), testContext(t)
	m := w.approved(ctx, t, 0)
	for n := range 3 {
		if _, err := w.remember(ctx, m.Name, rendered(fmt.Sprintf("a: %d\n", n))); err != nil {
			t.Fatal(err)
		}
	}
	kept := w.revisionKeys(ctx, t)
	for key, value := range everyStored(ctx, t, w.Env) {
		if slices.Contains(kept, key) {
			for _, gone := range []string{"11111111-0000-0000-0000-000000000000", "22222222-0000-0000-0000-000000000000"} {
				if _, err := w.Etcd.Put(ctx, w.Prefix+strings.Replace(key, string(m.UID), gone, 1), strings.ReplaceAll(string(value), string(m.UID), gone)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	options := w.Options(t)
	histories, err := talosmachines.NewHistories(harness.RESTOptionsUnder(t, options.Recommended.Etcd.StorageConfig.Prefix))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(histories.Destroy)
	living := func(context.Context) ([]ichor.TalosMachine, error) {
		var out ichor.TalosMachine
		err := apiserver.Scheme.Convert(m, &out, nil)
		return []ichor.TalosMachine{out}, err
	}
	removed, err := histories.Sweep(ctx, living)
	if err != nil || removed != 2 {
		t.Errorf("%d were removed, %v", removed, err)
	}
	if diff := cmp.Diff(kept, w.revisionKeys(ctx, t)); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
	failing := func(context.Context) ([]ichor.TalosMachine, error) { return nil, context.DeadlineExceeded }
	if removed, err := histories.Sweep(ctx, failing); err == nil || removed != 0 {
		t.Errorf("without knowing the machines %d were removed, %v", removed, err)
	}
}
