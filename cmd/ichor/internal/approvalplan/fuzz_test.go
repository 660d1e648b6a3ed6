// SPDX-License-Identifier: Apache-2.0

package approvalplan

import (
	"bytes"
	"regexp"
	"testing"
)

// breaks are what YAML takes for the end of a line.
var breaks = regexp.MustCompile("[\r\n\u0085\u2028\u2029]")

// FuzzRead reads bytes as a plan: each fault has a line of the file, and what has no fault has items.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		"", "---\n---\n", "machines: []\n", "a: *b\n", "machines:\n- {machine: 4c4c4544-0051-3610-8052-b4c04f4c3132, role: worker, installDisk: {serial: S1}}\n",
		"- {}\n- null\n", "machines: &a [*a]\n", "{machines: {}}\n", "machines:\n- role: 1\n  hostname: [x]\n", "? {a: b}\n: c\n", "!!binary x: y\n", "<<: {a: b}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		items, faults := Read("plan.yaml", bytes.NewReader(text))
		lines := 2 + len(breaks.FindAll(text, -1))
		for _, fault := range faults {
			if fault.Line < 1 || fault.Line > lines || fault.What == "" {
				t.Errorf("%q: fault at line %d of %d: %q", text, fault.Line, lines, fault.What)
			}
		}
		for _, item := range items {
			if item == nil {
				t.Errorf("%q: an item is nothing", text)
			}
		}
	})
}
