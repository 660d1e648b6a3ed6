// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// historyServer has a machine with three revisions, of which the last two differ in a secret alone.
func historyServer(t *testing.T, patches ...v1alpha1.TalosConfigPatch) *apitest.Server {
	t.Helper()
	server := apitest.Start(t, apitest.Fleet()...)
	cluster, machine := server.Cluster("prod"), server.Machine(apitest.ControlPlane)
	inputs := v1alpha1.ConfigRevisionInputs{
		Cluster:    v1alpha1.ObjectGeneration{Name: "prod", UID: cluster.UID, Generation: cluster.Generation},
		ApprovedBy: machine.Spec.Approval.By, ApprovedAt: machine.Spec.Approval.At,
	}
	revision := func(number int64, text string, cause string, patches ...v1alpha1.ObjectGeneration) v1alpha1.ConfigRevision {
		made := v1alpha1.ConfigRevision{
			Revision: number, Hash: strings.Repeat(string(rune('0'+number)), 64), Time: metav1.NewTime(apitest.Now.Add(-time.Duration(10-number) * time.Hour)),
			Text: text, Inputs: *inputs.DeepCopy(), Causes: []v1alpha1.ConfigRevisionCause{{Kind: "TalosConfigPatch", Message: cause}},
		}
		made.Inputs.Patches = patches
		return made
	}
	tuning := v1alpha1.ObjectGeneration{Name: "tuning", UID: "t", Generation: 1}
	revisions := []v1alpha1.ConfigRevision{
		revision(3, "a: 1\nb: 3\n", "a value from a Secret", tuning),
		revision(2, "a: 1\nb: 3\n", "patch tuning was added (generation 1), written by kubectl-create", tuning),
		revision(1, "a: 1\nb: 2\n", "nothing was rendered for the machine before"),
	}
	kind := metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "TalosMachineHistory"}
	path := "talosmachines/" + apitest.ControlPlane + "/history"
	answer := func(revisions ...v1alpha1.ConfigRevision) *v1alpha1.TalosMachineHistory {
		return &v1alpha1.TalosMachineHistory{TypeMeta: kind, ObjectMeta: metav1.ObjectMeta{Name: apitest.ControlPlane}, Revisions: revisions}
	}
	gone := apierrors.NewNotFound(v1alpha1.Resource("talosmachines"), "x").Status()
	gone.Message = "revision 9 isn't kept: 1 to 3 are"
	short := make([]v1alpha1.ConfigRevision, 0, len(revisions))
	for _, each := range revisions {
		each.Text = ""
		short = append(short, each)
	}
	server.Views = map[string]any{
		path: answer(short...), path + "?revision=1": answer(revisions[2]), path + "?revision=2": answer(revisions[1]), path + "?revision=3": answer(revisions[0]),
		path + "?revision=9": gone, "talosmachines/" + apitest.Pending + "/history": answer(),
		"talosconfigpatches": v1alpha1.TalosConfigPatchList{Items: patches},
	}
	return server
}

func TestConfigHistory(t *testing.T) {
	t.Parallel()
	server := historyServer(t)
	result := server.Run(t, "machine", "config", "history", "cp-1")
	want := "REVISION  AGE  HASH          WHAT CHANGED\n" +
		"3         7h   333333333333  a value from a Secret\n" +
		"2         8h   222222222222  patch tuning was added (generation 1), written by kubectl-create\n" +
		"1         9h   111111111111  nothing was rendered for the machine before\n"
	if diff := cmp.Diff(want, result.Out); result.Code != 0 || diff != "" {
		t.Errorf("exit status %d, %s\n(-want +got):\n%s", result.Code, result.Err, diff)
	}
	result = server.Run(t, "machine", "config", "history", "cp-1", "-o", "json")
	var object v1alpha1.TalosMachineHistory
	if err := json.Unmarshal([]byte(result.Out), &object); err != nil || object.Kind != "TalosMachineHistory" || len(object.Revisions) != 3 {
		t.Errorf("as JSON: %v\n%s%s", err, result.Out, result.Err)
	}
	if result = server.Run(t, "machine", "config", "history", apitest.Pending); result.Code != 0 || result.Out != "" || !strings.Contains(result.Err, "Nothing was rendered") {
		t.Errorf("of a machine without one: %+v", result)
	}
}

func TestConfigDiff(t *testing.T) {
	t.Parallel()
	server := historyServer(t)
	changed := func(from, to, minus, plus string) string {
		return "--- revision " + from + "\n+++ revision " + to + "\n@@ -1,2 +1,2 @@\n a: 1\n-b: " + minus + "\n+b: " + plus + "\n"
	}
	for name, test := range map[string]struct {
		args []string
		out  string
		err  string
		code int
	}{
		"the last change, which was of a secret":  {args: []string{"cp-1"}, err: "differ in secrets alone"},
		"since a revision":                        {args: []string{"cp-1", "1"}, out: changed("1", "3", "2", "3"), code: 1},
		"from one to another":                     {args: []string{"cp-1", "2", "1"}, out: changed("2", "1", "3", "2"), code: 1},
		"with itself":                             {args: []string{"cp-1", "1", "1"}},
		"a revision that isn't kept":              {args: []string{"cp-1", "9"}, err: "1 to 3 are", code: 2},
		"no revision":                             {args: []string{"cp-1", "new"}, err: `"new" is no revision`, code: 2},
		"a machine that nothing was rendered for": {args: []string{apitest.Pending}, err: "nothing was rendered", code: 2},
		"no machine":                              {args: []string{"cp-9"}, err: "no machine", code: 2},
		"three revisions":                         {args: []string{"cp-1", "1", "2", "3"}, err: "takes a machine and up to two revisions", code: 2},
		"nothing at all":                          {err: "takes a machine", code: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := server.Run(t, append([]string{"machine", "config", "diff"}, test.args...)...)
			if result.Code != test.code || !strings.Contains(result.Err, test.err) || test.err == "" && result.Err != "" {
				t.Errorf("exit status %d, want %d; %q, want %q", result.Code, test.code, result.Err, test.err)
			}
			if diff := cmp.Diff(test.out, result.Out); diff != "" {
				t.Errorf("standard output (-want +got):\n%s", diff)
			}
		})
	}
	coloured := server.Call(t, apitest.Call{Terminal: cli.Terminal{Out: true}}, "machine", "config", "diff", "cp-1", "1")
	if !strings.Contains(coloured.Out, "\x1b[") || coloured.Code != 1 {
		t.Errorf("on a terminal: %+v", coloured)
	}
	quiet := server.Call(t, apitest.Call{Terminal: cli.Terminal{Out: true, NoColor: true}}, "machine", "config", "diff", "cp-1", "1")
	if strings.Contains(quiet.Out, "\x1b") {
		t.Errorf("with NO_COLOR: %q", quiet.Out)
	}
}

func TestConfigRollbackShowsAndChangesNothing(t *testing.T) {
	t.Parallel()
	tuning := v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: "tuning", UID: "t", Generation: 1}}
	tuning.Spec.Target.ClusterRef.Name = "prod"
	tuning.Status.Machines.Matched = 40
	server := historyServer(t, tuning)
	result := server.Run(t, "machine", "config", "rollback", "cp-1", "1")
	for _, want := range []string{
		"revision 1 (rendered 9h ago)", "changes nothing",
		"patch tuning: added since (generation 1)", `kubectl patch talosconfigpatch tuning --type=merge -p '{"spec":{"disabled":true}}'`, "it is for 40 machines",
		"--- revision 3\n+++ revision 1\n", "-b: 3\n+b: 2\n",
	} {
		if !strings.Contains(result.Out, want) {
			t.Errorf("it doesn't say %q:\n%s%s", want, result.Out, result.Err)
		}
	}
	if result.Code != 0 {
		t.Errorf("exit status %d", result.Code)
	}
	if same := server.Run(t, "machine", "config", "rollback", "cp-1", "3"); same.Code != 0 || !strings.Contains(same.Out, "is the same as in this revision") {
		t.Errorf("to what it has: %+v", same)
	}
	if object := server.Run(t, "machine", "config", "rollback", "cp-1", "1", "-o", "jsonpath={.revisions[*].revision}"); object.Out != "1" {
		t.Errorf("as an object: %+v", object)
	}
	if writes := server.Writes(); len(writes) > 0 {
		t.Errorf("it wrote: %v", writes)
	}
}
