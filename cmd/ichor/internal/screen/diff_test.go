// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	const diff = "--- a\n+++ b\n@@ -1,3 +1,3 @@\n same\n-was\n+is\n same\n"
	for _, test := range []struct {
		name  string
		style Style
		diff  string
		want  string
	}{
		{"without colours it is as diff(1) has it", Plain, diff, diff},
		{
			"with colours each line is ended by itself", Coloured, diff,
			"\x1b[1m--- a\x1b[m\n\x1b[1m+++ b\x1b[m\n\x1b[1m@@ -1,3 +1,3 @@\x1b[m\n same\n\x1b[31m-was\x1b[m\n\x1b[32m+is\x1b[m\n same\n",
		},
		{"nothing stays nothing", Coloured, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(test.want, Diff(test.diff, test.style)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
