// SPDX-License-Identifier: Apache-2.0

package patch_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const tuning = `apiVersion: ichor.maesh.dev/v1alpha1
kind: TalosConfigPatch
metadata: {name: tuning}
spec:
  target: {clusterRef: {name: prod}}
  machine: {sysctls: {vm.swappiness: "1"}}
`

// changes are what writing the patch would do: one machine changes, and one needs a reboot.
func changes(*v1alpha1.TalosConfigPatchPreview) v1alpha1.TalosConfigPatchPreviewStatus {
	return v1alpha1.TalosConfigPatchPreviewStatus{
		Machines: v1alpha1.PreviewCounts{Matched: 2, Changed: 2, NeedReboot: 1},
		Classes: []v1alpha1.PreviewClass{
			{Count: 1, Machines: []string{apitest.ControlPlane}, Diff: "--- a\n+++ b\n@@ -1 +1 @@\n-vm.swappiness: \"2\"\n+vm.swappiness: \"1\"\n"},
			{Count: 1, Machines: []string{"other"}, NeedsReboot: true, Diff: "--- a\n+++ b\n@@ -0,0 +1 @@\n+rules\n", Fields: []v1alpha1.PreviewField{
				{Document: "v1alpha1", Path: "machine.udev", NeedsReboot: true},
			}},
		},
		Configuration: "version: v1alpha1\n",
	}
}

func nothing(*v1alpha1.TalosConfigPatchPreview) v1alpha1.TalosConfigPatchPreviewStatus {
	return v1alpha1.TalosConfigPatchPreviewStatus{Machines: v1alpha1.PreviewCounts{Matched: 2}}
}

func start(t *testing.T, answer func(*v1alpha1.TalosConfigPatchPreview) v1alpha1.TalosConfigPatchPreviewStatus) *apitest.Server {
	t.Helper()
	server := apitest.Start(t, apitest.Fleet()...)
	server.Preview = answer
	return server
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "patch.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestApply(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		text    string
		args    []string
		call    apitest.Call
		preview func(*v1alpha1.TalosConfigPatchPreview) v1alpha1.TalosConfigPatchPreviewStatus
		code    int
		says    []string
		out     string
		written bool
	}{
		{name: "with consent given", args: []string{"--yes"}, preview: changes, written: true, out: "talosconfigpatch.ichor.maesh.dev/tuning applied\n",
			says: []string{"1 machine: cp-1\n", "+vm.swappiness", "counts from a reboot on: machine.udev", "changes 2 machines, 1 of them not before a reboot"}},
		{name: "confirmed by a person", args: []string{"--accessible", "--wait=false"}, call: apitest.Call{Terminal: apitest.Person, Typed: "y\n"}, preview: changes, written: true,
			says: []string{"Apply patch tuning? It changes 2 machines", "\x1b[32m+vm.swappiness"}, out: "talosconfigpatch.ichor.maesh.dev/tuning applied\n"},
		{name: "but the person says no", args: []string{"--accessible"}, call: apitest.Call{Terminal: apitest.Person, Typed: "\n"}, preview: changes, code: cli.ExitUsage, says: []string{"cancelled"}},
		{name: "where nobody can be asked", preview: changes, code: cli.ExitUsage, says: []string{"say --yes"}},
		{name: "which changes no machine, without a word", preview: nothing, written: true, out: "talosconfigpatch.ichor.maesh.dev/tuning applied\n", says: []string{"changes no machine"}},
		{name: "in a dry run", args: []string{"--dry-run=server"}, preview: changes, out: "talosconfigpatch.ichor.maesh.dev/tuning applied (server dry run)\n", says: []string{"+vm.swappiness"}},
		{name: "of something else", text: "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n", preview: changes, code: cli.ExitUsage, says: []string{`is a "Secret" of "v1"`}},
		{name: "of the same twice", text: tuning + "---\n" + tuning, preview: changes, code: cli.ExitUsage, says: []string{"patch tuning is in it twice"}},
		{name: "of nothing", text: "---\n", preview: changes, code: cli.ExitUsage, says: []string{"there is no patch in it"}},
		{name: "without colours where none are wanted", args: []string{"--accessible", "--wait=false", "--yes"},
			call:    apitest.Call{Terminal: cli.Terminal{In: true, Out: true, Err: true, NoColor: true}},
			preview: changes, written: true, says: []string{"\n+vm.swappiness"}, out: "talosconfigpatch.ichor.maesh.dev/tuning applied\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server, text := start(t, test.preview), test.text
			if text == "" {
				text = tuning
			}
			result := server.Call(t, test.call, append([]string{"patch", "apply", "-f", file(t, text)}, test.args...)...)
			if result.Code != test.code {
				t.Errorf("exit status %d, want %d; standard error:\n%s", result.Code, test.code, result.Err)
			}
			for _, says := range test.says {
				if !strings.Contains(result.Err, says) {
					t.Errorf("standard error doesn't say %q:\n%s", says, result.Err)
				}
			}
			if diff := cmp.Diff(test.out, result.Out); diff != "" {
				t.Errorf("standard output (-want +got):\n%s", diff)
			}
			if written := server.Patch("tuning") != nil; written != test.written {
				t.Errorf("written: %v, want %v", written, test.written)
			}
			if coloured := strings.Contains(result.Err, "\x1b["); coloured && (!test.call.Terminal.Err || test.call.Terminal.NoColor) {
				t.Errorf("colours where none are wanted:\n%q", result.Err)
			}
		})
	}
}

func TestApplyFromStandardInput(t *testing.T) {
	t.Parallel()
	server := start(t, changes)
	if result := server.Call(t, apitest.Call{Typed: tuning}, "patch", "apply", "-f", "-"); result.Code != cli.ExitUsage || !strings.Contains(result.Err, "--yes") {
		t.Errorf("without consent: %+v", result)
	}
	if result := server.Call(t, apitest.Call{Typed: tuning}, "patch", "apply", "-f", "-", "--yes"); result.Code != 0 || server.Patch("tuning") == nil {
		t.Errorf("with consent: %+v", result)
	}
	writes := server.Writes()
	if last := writes[len(writes)-1]; !strings.Contains(last, "fieldManager=ichor") || !strings.HasPrefix(last, "PATCH talosconfigpatches/tuning") {
		t.Errorf("the write was %s", last)
	}
	if result := server.Call(t, apitest.Call{Typed: tuning}, "patch", "apply", "-f", "-", "--yes"); result.Out != "talosconfigpatch.ichor.maesh.dev/tuning unchanged\n" {
		t.Errorf("again: %+v", result)
	}
}

// judged is the patch after the controller looked at it.
func judged(patch *v1alpha1.TalosConfigPatch, status metav1.ConditionStatus, reason, message string) *v1alpha1.TalosConfigPatch {
	patch = patch.DeepCopy()
	patch.Status.ObservedGeneration = patch.Generation
	patch.Status.Machines = v1alpha1.PatchCounts{Matched: 2, Applied: 1, Refused: 1}
	patch.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(apitest.Now)}}
	return patch
}

func TestApplyWaits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		status  metav1.ConditionStatus
		reason  string
		message string
		args    []string
		code    int
		says    string
	}{
		{"until all machines run with it", metav1.ConditionTrue, "Applied", "all 2 machines run with it", nil, 0, "patch tuning: all 2 machines run with it"},
		{"until the rest waits for a reboot", metav1.ConditionFalse, v1alpha1.ReasonPendingReboot, "1 waits for a reboot", nil, 0, "patch tuning: 1 waits for a reboot"},
		{"until it is refused", metav1.ConditionFalse, v1alpha1.ReasonPatchRefused, "1 of 2 machines can't have it", nil, cli.ExitFailed, "1 of 2 machines can't have it"},
		{"until the time is over", "", "", "", []string{"--timeout=200ms"}, cli.ExitTimedOut, "watch it with: ichor patch show tuning --wait"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := start(t, changes)
			server.Written = func(object metav1.Object) {
				if patch, ok := object.(*v1alpha1.TalosConfigPatch); ok && test.status != "" {
					server.Put(judged(patch, test.status, test.reason, test.message))
				}
			}
			result := server.Run(t, append([]string{"patch", "apply", "-f", file(t, tuning), "--yes", "--wait"}, test.args...)...)
			if result.Code != test.code || !strings.Contains(result.Err, test.says) {
				t.Errorf("exit status %d, want %d, and %q in standard error:\n%s", result.Code, test.code, test.says, result.Err)
			}
		})
	}
}

func TestApplyInterruptedLeavesTheWorkAlone(t *testing.T) {
	t.Parallel()
	server := start(t, changes)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	call := apitest.Call{Context: ctx, OnErr: func(soFar string) {
		if strings.Contains(soFar, "waits for the controller") {
			cancel(cli.ErrInterrupted)
		}
	}}
	result := server.Call(t, call, "patch", "apply", "-f", file(t, tuning), "--yes", "--wait")
	if result.Code != cli.ExitInterrupted || !strings.Contains(result.Err, "the work goes on") || server.Patch("tuning") == nil {
		t.Errorf("got %+v", result)
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		args    []string
		preview func(*v1alpha1.TalosConfigPatchPreview) v1alpha1.TalosConfigPatchPreviewStatus
		code    int
		out     string
		err     string
	}{
		{"of a file that changes machines", []string{"-f", "FILE"}, changes, 1, "1 machine: cp-1\n--- a\n+++ b\n@@ -1 +1 @@\n-vm.swappiness: \"2\"\n+vm.swappiness: \"1\"\n", ""},
		{"of a file that changes none", []string{"-f", "FILE"}, nothing, 0, "changes no machine\n", ""},
		{"of a patch that isn't there", []string{"absent"}, changes, 2, "", "absent"},
		{"of nothing", nil, changes, 2, "", "either -f FILE or the name"},
		{"of a file that isn't there", []string{"-f", "/absent/patch.yaml"}, changes, 2, "", "/absent/patch.yaml"},
		{"for machines that there was no time for", []string{"-f", "FILE"}, func(*v1alpha1.TalosConfigPatchPreview) v1alpha1.TalosConfigPatchPreviewStatus {
			return v1alpha1.TalosConfigPatchPreviewStatus{Machines: v1alpha1.PreviewCounts{Matched: 2, NotComputed: 2}}
		}, 2, "2 were not looked at", "had no time for 2 machines"},
		{"that machines can't have", []string{"-f", "FILE"}, func(*v1alpha1.TalosConfigPatchPreview) v1alpha1.TalosConfigPatchPreviewStatus {
			return v1alpha1.TalosConfigPatchPreviewStatus{Machines: v1alpha1.PreviewCounts{Refused: 1}, Refusals: []v1alpha1.PreviewRefusal{
				{Count: 1, Machines: []string{apitest.ControlPlane}, Patch: "other", Path: "spec.machine", Reason: "deletes what isn't there"},
			}}
		}, 1, "refused by 1 machine (cp-1): patch other: spec.machine: deletes what isn't there", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server, args := start(t, test.preview), []string{"patch", "diff"}
			for _, arg := range test.args {
				if arg == "FILE" {
					arg = file(t, tuning)
				}
				args = append(args, arg)
			}
			result := server.Run(t, args...)
			if result.Code != test.code || !strings.Contains(result.Out, test.out) || !strings.Contains(result.Err, test.err) {
				t.Errorf("got %+v, want exit status %d, %q and %q", result, test.code, test.out, test.err)
			}
			if server.Patch("tuning") != nil {
				t.Error("a diff stored the patch")
			}
		})
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	server := start(t, changes)
	var asked *v1alpha1.PreviewRender
	server.Preview = func(question *v1alpha1.TalosConfigPatchPreview) v1alpha1.TalosConfigPatchPreviewStatus {
		asked = question.Spec.Render
		return changes(question)
	}
	result := server.Run(t, "patch", "render", "-f", file(t, tuning), "--machine", "cp-1", "--alone")
	if result.Code != 0 || result.Out != "version: v1alpha1\n" {
		t.Errorf("got %+v", result)
	}
	if diff := cmp.Diff(&v1alpha1.PreviewRender{Machine: apitest.ControlPlane, Alone: true}, asked); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
	result = server.Run(t, "patch", "render", "-f", file(t, tuning), "--machine", "cp-1", "-o", "json")
	got := &v1alpha1.TalosConfigPatchPreview{}
	if err := json.Unmarshal([]byte(result.Out), got); err != nil || got.Kind != "TalosConfigPatchPreview" || got.Status.Machines.Changed != 2 {
		t.Errorf("as an object: %v, %+v", err, got)
	}
	if result = server.Run(t, "patch", "render", "tuning"); result.Code != cli.ExitUsage || !strings.Contains(result.Err, "--machine") {
		t.Errorf("without a machine: %+v", result)
	}
}

func TestShowListAndComplete(t *testing.T) {
	t.Parallel()
	server := start(t, changes)
	if result := server.Run(t, "patch", "list"); result.Code != 0 || !strings.Contains(result.Err, "No patches") {
		t.Errorf("a list of nothing: %+v", result)
	}
	if result := server.Run(t, "patch", "apply", "-f", file(t, tuning), "--yes"); result.Code != 0 {
		t.Fatalf("apply: %+v", result)
	}
	patch := judged(server.Patch("tuning"), metav1.ConditionFalse, v1alpha1.ReasonPatchRefused, "1 of 2 machines can't have it")
	patch.Status.Refusals = []v1alpha1.PatchRefusal{{Machine: apitest.ControlPlane, Path: "spec.machine", Reason: "deletes what isn't there"}}
	server.Put(patch)
	result := server.Run(t, "patch", "show", "talosconfigpatch.ichor.maesh.dev/tuning")
	for _, want := range []string{"tuning  patch of TalosCluster prod", "2 meant, 1 run with it", apitest.ControlPlane + "  spec.machine  deletes what isn't there", "1 of 2 machines can't have it", "sysctls:\n"} {
		if !strings.Contains(result.Out, want) {
			t.Errorf("standard output doesn't show %q:\n%s%s", want, result.Out, result.Err)
		}
	}
	if result = server.Run(t, "patch", "list", "--no-headers"); !strings.HasPrefix(result.Out, "tuning") {
		t.Errorf("list: %+v", result)
	}
	if result = server.Run(t, "__complete", "patch", "show", "tu"); !strings.Contains(result.Out, "tuning\t1 of 2 machines run with it") {
		t.Errorf("completion: %+v", result)
	}
	if result = server.Run(t, "patch", "diff", "tuning"); result.Code != 1 {
		t.Errorf("what deleting it would do: %+v", result)
	}
}
