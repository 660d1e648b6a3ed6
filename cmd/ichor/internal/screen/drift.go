// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"fmt"
	"strings"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Drift draws in what a machine differs from what it is to have: what it should have with -, what it has with +.
func Drift(title string, drift *v1alpha1.TalosMachineDrift, style Style) string {
	mark := style.Wait
	switch drift.State {
	case "InSync":
		mark = style.Good
	case v1alpha1.ReasonDrifted:
		mark = style.Bad
	}
	lines := []string{style.Heading(title) + gap + mark(drift.State) + gap + drift.Message}
	for _, item := range drift.Items {
		lines = append(lines, gap+place(item.Document, item.Path))
		if item.Want != "" {
			lines = append(lines, gap+gap+style.render(removedStyle, "- "+item.Want))
		}
		if item.Have != "" {
			lines = append(lines, gap+gap+style.render(goodStyle, "+ "+item.Have))
		}
	}
	if more := int(drift.Count) - len(drift.Items); more > 0 {
		lines = append(lines, gap+fmt.Sprintf("and %s more", Plural(more, "place", "places")))
	}
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// place names a field.
func place(document, path string) string {
	switch {
	case document == "v1alpha1":
		return path
	case path == "":
		return document
	default:
		return document + " " + path
	}
}
