// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// rememberedConfigurations looks, as who may only look, at what a worker was given while a patch came and went.
func rememberedConfigurations(t *testing.T, s *suite, worker *v1alpha1.TalosMachine, patch string) {
	t.Helper()
	viewer := s.stack.Dir().KubeconfigOf("viewer")
	var history v1alpha1.TalosMachineHistory
	if err := json.Unmarshal([]byte(s.must(t, viewer, "ichor", "machine", "config", "history", worker.Name, "-o", "json")), &history); err != nil {
		t.Fatal(err)
	}
	if len(history.Revisions) == 0 || history.Revisions[0].Hash != s.get(t, worker.Name).Status.Config.RenderedHash {
		t.Fatalf("the newest revision isn't what was rendered last: %+v", history.Revisions)
	}
	came, went := int64(0), int64(0)
	for _, revision := range history.Revisions {
		for _, cause := range revision.Causes {
			switch {
			case cause.Name == patch && cause.Change == v1alpha1.CauseAdded:
				came = revision.Revision
			case cause.Name == patch && cause.Change == v1alpha1.CauseRemoved:
				went = revision.Revision
			}
		}
	}
	if came == 0 || went <= came {
		t.Fatalf("patch %s came with revision %d and went with %d: %+v", patch, came, went, history.Revisions)
	}
	before := strings.TrimSpace(s.must(t, viewer, "ichor", "machine", "config", "rollback", worker.Name, "1", "-o", "jsonpath={.revisions[0].text}"))
	if before == "" || strings.Contains(before, "PRIVATE KEY") {
		t.Error("the first revision has no text, or a key in it")
	}
	diff := s.run(t, viewer, "ichor", "machine", "config", "diff", worker.Name, "1")
	if diff.status > 1 {
		t.Errorf("in what the newest differs from the first: status %d, %s", diff.status, diff.err)
	}
	back := s.must(t, viewer, "ichor", "machine", "config", "rollback", worker.Name, strconv.FormatInt(came, 10))
	for _, want := range []string{"patch " + patch + ": removed since", "+        vm.swappiness: \"1\""} {
		if !strings.Contains(back, want) {
			t.Errorf("how to go back to revision %d doesn't say %q:\n%s", came, want, back)
		}
	}
}
