// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"fmt"
	"slices"
	"strings"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// shownNames is how many machines of a class are named.
const shownNames = 10

// Preview draws what a change of a patch would do: each class of machines with its difference, then what is refused, and
// in the end the counts. Titles are what people call machines, by their names; those without one go by the name.
func Preview(preview *v1alpha1.TalosConfigPatchPreview, titles map[string]string, style Style) string {
	status, p := &preview.Status, &page{style: style}
	for i := range status.Classes {
		class := &status.Classes[i]
		p.line(style.Heading(Plural(int(class.Count), "machine", "machines")) + ": " + listed(class.Machines, int(class.Count), titles))
		if class.Before != "" {
			p.line("can't be given anything as it is (" + class.Before + "), so what changes isn't known")
		}
		if late := lateFields(class); class.NeedsReboot {
			p.line(style.Wait("counts from a reboot on: ") + late)
		}
		if class.Diff != "" {
			p.text.WriteString(Diff(class.Diff, style))
		}
		if class.DiffCut {
			p.line(style.Faint("(the difference is longer, and is cut here)"))
		}
		p.line("")
	}
	if status.ClassesOmitted > 0 {
		p.line(fmt.Sprintf("and %s that get something else", Plural(int(status.ClassesOmitted), "more group of machines", "more groups of machines")))
	}
	for i := range status.Refusals {
		refusal := &status.Refusals[i]
		fault := refusal.Reason
		if refusal.Path != "" {
			fault = refusal.Path + ": " + fault
		}
		if refusal.Patch != "" && refusal.Patch != preview.Name {
			fault = "patch " + refusal.Patch + ": " + fault
		}
		p.line(style.Bad("refused by "+Plural(int(refusal.Count), "machine", "machines")) + " (" + listed(refusal.Machines, int(refusal.Count), titles) + "): " + fault)
	}
	if status.RefusalsOmitted > 0 {
		p.line(fmt.Sprintf("and refused for %d more reasons", status.RefusalsOmitted))
	}
	for _, warning := range status.Warnings {
		p.line(style.Wait("warning: ") + warning)
	}
	p.line(PreviewCounts(&status.Machines))
	return p.text.String()
}

// PreviewCounts says in one line what a change of a patch would do.
func PreviewCounts(counts *v1alpha1.PreviewCounts) string {
	said := []string{"changes no machine"}
	if counts.Changed > 0 {
		said = []string{"changes " + Plural(int(counts.Changed), "machine", "machines")}
	}
	if counts.NeedReboot > 0 {
		said = append(said, fmt.Sprintf("%d of them not before a reboot", counts.NeedReboot))
	}
	if counts.Refused > 0 {
		said = append(said, fmt.Sprintf("%d can't have it", counts.Refused))
	}
	if counts.UnreachedByPatches > 0 {
		said = append(said, fmt.Sprintf("%d keep a configuration of their own", counts.UnreachedByPatches))
	}
	if counts.NotComputed > 0 {
		said = append(said, fmt.Sprintf("%d were not looked at for lack of time", counts.NotComputed))
	}
	return strings.Join(said, ", ")
}

// listed names the first machines.
func listed(names []string, count int, titles map[string]string) string {
	var shown []string
	for _, name := range names[:min(len(names), shownNames)] {
		if title := titles[name]; title != "" {
			name = title
		}
		shown = append(shown, name)
	}
	text := strings.Join(shown, ", ")
	if more := count - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// lateFields are those that count from a reboot on only.
func lateFields(class *v1alpha1.PreviewClass) string {
	var late []string
	for _, field := range class.Fields {
		if field.NeedsReboot {
			late = append(late, place(field.Document, field.Path))
		}
	}
	late = slices.Compact(late)
	if class.FieldsOmitted > 0 {
		late = append(late, "maybe more")
	}
	return strings.Join(late, ", ")
}
