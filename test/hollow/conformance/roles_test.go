// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/role"

	"maesh.dev/ichor/test/hollow/access"
)

func TestTheRulesAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	lines, err := roleTable()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range methods() {
		known[path(m)] = true
		for _, r := range role.All.Strings() {
			line, listed := lines[path(m)]
			want := r == string(role.Admin) || (listed && slices.Contains(line.roles, r))
			if got := access.Authorize(role.MakeSet(role.Role(r)), path(m)) == nil; got != want {
				t.Errorf("%s with %s: allowed %t, want %t", path(m), r, got, want)
			}
		}
	}
	for method := range lines {
		if !known[method] {
			t.Errorf("%s is in the table, but no service has it", method)
		}
	}
}
