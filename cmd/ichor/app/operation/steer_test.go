// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestSteer(t *testing.T) {
	t.Parallel()
	const (
		patched   = "PATCH talosoperations/" + name
		resumed   = "PUT talosoperations/" + name + "/resume"
		cancelled = "PUT talosoperations/" + name + "/cancel"
	)
	already := func(operation *v1alpha1.TalosOperation) {
		operation.Spec.Control = &v1alpha1.OperationControl{CancelRequested: true}
	}
	both := func(operation *v1alpha1.TalosOperation) { paused(operation); operation.Spec.Suspend = true }
	asked := func(operation *v1alpha1.TalosOperation) { paused(operation); operation.Generation = 2 }
	over := ends(v1alpha1.OperationSucceeded, "3 machines are done")
	same := func(*v1alpha1.TalosOperation) {}
	for _, test := range []struct {
		name   string
		change func(*v1alpha1.TalosOperation)
		args   []string
		call   apitest.Call
		code   int
		says   string
		writes []string
	}{
		{"suspend lets the machine that was begun end", same, []string{"suspend"}, apitest.Call{}, 0, "Machine cp-1 was begun and is finished first.", []string{patched}},
		{"suspend again changes nothing", suspended, []string{"suspend"}, apitest.Call{}, 0, "unchanged", nil},
		{"suspend what is over", over, []string{"suspend"}, apitest.Call{}, cli.ExitBlocked, "has ended (Succeeded)", nil},
		{"resume what is suspended", suspended, []string{"resume"}, apitest.Call{}, 0, "resumed", []string{patched}},
		{"resume what stopped at a step", paused, []string{"resume"}, apitest.Call{}, 0, "resumed", []string{resumed}},
		{"resume what stopped and is suspended", both, []string{"resume"}, apitest.Call{}, 0, "resumed", []string{patched, resumed}},
		{"resume what was just resumed", asked, []string{"resume"}, apitest.Call{}, 0, "neither suspended nor stopped", nil},
		{"resume what goes on", same, []string{"resume"}, apitest.Call{}, 0, "it is Running", nil},
		{"resume what is over", over, []string{"resume"}, apitest.Call{}, cli.ExitBlocked, "has ended (Succeeded)", nil},
		{"resume in a dry run", paused, []string{"resume", "--dry-run=server"}, apitest.Call{}, 0, "(server dry run)", []string{resumed}},
		{"cancel with consent", same, []string{"cancel", "--yes"}, apitest.Call{}, 0, "cancel requested", []string{cancelled}},
		{"cancel where nobody can be asked", same, []string{"cancel"}, apitest.Call{}, cli.ExitUsage, "say --yes", nil},
		{"cancel, and a person says yes", same, []string{"cancel", "--accessible", "--wait=false"}, apitest.Call{Terminal: apitest.Person, Typed: "y\n"}, 0, "1 of 3 machines done", []string{cancelled}},
		{"cancel, but the person says no", same, []string{"cancel", "--accessible"}, apitest.Call{Terminal: apitest.Person, Typed: "\n"}, cli.ExitUsage, "nothing was changed; the operation goes on", nil},
		{"cancel again changes nothing", already, []string{"cancel", "--yes"}, apitest.Call{}, 0, "unchanged", nil},
		{"cancel what is over", over, []string{"cancel", "--yes"}, apitest.Call{}, cli.ExitBlocked, "nothing to cancel", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, fleet(changed(test.change))...)
			result := server.Call(t, test.call, append([]string{"operation", test.args[0], name}, test.args[1:]...)...)
			if result.Code != test.code {
				t.Errorf("exit status %d, want %d; standard error:\n%s", result.Code, test.code, result.Err)
			}
			if !strings.Contains(result.Out+result.Err, test.says) {
				t.Errorf("doesn't say %q:\n%s%s", test.says, result.Out, result.Err)
			}
			var writes []string
			for _, write := range server.Writes() {
				path, _, _ := strings.Cut(write, "?")
				writes = append(writes, path)
			}
			if !slices.Equal(writes, test.writes) {
				t.Errorf("wrote %v, want %v", writes, test.writes)
			}
		})
	}
}

func TestSteeredFieldsAreThoseThatWereMeant(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, fleet(running())...)
	for _, args := range [][]string{{"suspend"}, {"resume"}, {"cancel", "--yes"}} {
		if result := server.Run(t, append([]string{"operation", args[0], name}, args[1:]...)...); result.Code != 0 {
			t.Fatalf("%v: exit status %d; standard error:\n%s", args, result.Code, result.Err)
		}
		if got := server.Operation(name).Spec; got.Suspend != (args[0] == "suspend") || (got.Control != nil) != (args[0] == "cancel") {
			t.Errorf("after %v: suspend %v, control %+v", args, got.Suspend, got.Control)
		}
	}
}

func TestCancelWaitsForItsEnd(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		end  func(*v1alpha1.TalosOperation)
		code int
		says string
	}{
		{"which is what was asked for", ends(v1alpha1.OperationCancelled, "cancelled by tester"), 0, "cancelled by tester"},
		{"which came before", ends(v1alpha1.OperationSucceeded, "3 machines are done"), cli.ExitFailed, "had come to its end before it could be cancelled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, fleet(running())...)
			server.Written = func(object metav1.Object) {
				operation := object.(*v1alpha1.TalosOperation).DeepCopy() //nolint:forcetypeassert // nothing else is written
				test.end(operation)
				server.Put(operation)
			}
			result := server.Run(t, "operation", "cancel", name, "--yes", "--wait")
			if result.Code != test.code || !strings.Contains(result.Err, test.says) {
				t.Errorf("exit status %d, want %d with %q; standard error:\n%s", result.Code, test.code, test.says, result.Err)
			}
		})
	}
}
