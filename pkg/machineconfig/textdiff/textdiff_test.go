// SPDX-License-Identifier: Apache-2.0

package textdiff_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/pkg/machineconfig/textdiff"
)

func TestUnified(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, from, to, want string }{
		{"equal texts", "a\nb\n", "a\nb\n", ""},
		{"an end that isn't written is no difference", "a\nb", "a\nb\n", ""},
		{"a changed line", "a\nb\nc\n", "a\nx\nc\n", "--- before\n+++ after\n@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"},
		{"from nothing", "", "a\n", "--- before\n+++ after\n@@ -0,0 +1 @@\n+a\n"},
		{"to nothing", "a\n", "", "--- before\n+++ after\n@@ -1 +0,0 @@\n-a\n"},
		{
			"far from the change nothing is shown", "1\n2\n3\n4\n5\n6\n", "1\n2\n3\n4\n5\nx\n",
			"--- before\n+++ after\n@@ -3,4 +3,4 @@\n 3\n 4\n 5\n-6\n+x\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, textdiff.Unified("before", "after", test.from, test.to)); diff != "" {
				t.Errorf("from %q to %q (-want +got):\n%s", test.from, test.to, diff)
			}
		})
	}
}

func TestMarksTakeNoRemovedLineForAHeader(t *testing.T) {
	t.Parallel()
	diff := textdiff.Unified("before", "after", "---\nkind: A\n-- b\n", "---\nkind: B\n++ b\n")
	got := textdiff.Marks(strings.Split(strings.TrimSuffix(diff, "\n"), "\n"))
	want := []textdiff.Mark{textdiff.Header, textdiff.Header, textdiff.Header, textdiff.Context, textdiff.Removed, textdiff.Removed, textdiff.Added, textdiff.Added}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("marks of\n%s(-want +got):\n%s", diff, d)
	}
}

func TestCutEndsALine(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, diff string
		size       int
		want       string
		cut        bool
	}{
		{"what fits is whole", "+a\n+b\n", 6, "+a\n+b\n", false},
		{"what doesn't ends with a whole line", "+a\n+bcd\n", 6, "+a\n", true},
		{"a line that is too long is left out", "+abcdefgh\n", 6, "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, cut := textdiff.Cut(test.diff, test.size)
			if got != test.want || cut != test.cut {
				t.Errorf("got %q, %v; want %q, %v", got, cut, test.want, test.cut)
			}
		})
	}
}
