// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"strings"

	"maesh.dev/ichor/pkg/machineconfig/textdiff"
)

// Diff draws a unified difference, as textdiff makes it: what is added green, what is removed red. The signs are there
// without colours too.
func Diff(diff string, style Style) string {
	if diff == "" {
		return ""
	}
	lines := strings.Split(strings.TrimSuffix(diff, "\n"), "\n")
	for i, mark := range textdiff.Marks(lines) {
		switch mark {
		case textdiff.Header:
			lines[i] = style.Heading(lines[i])
		case textdiff.Added:
			lines[i] = style.render(goodStyle, lines[i])
		case textdiff.Removed:
			lines[i] = style.render(removedStyle, lines[i])
		}
	}
	return strings.Join(lines, "\n") + "\n"
}
