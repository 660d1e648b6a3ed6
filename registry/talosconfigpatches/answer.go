// SPDX-License-Identifier: Apache-2.0

package talosconfigpatches

import (
	"fmt"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/machineconfig/textdiff"
)

// The bounds of an answer, so that it fits into a response whatever the fleet and the patch are. They are in the API's
// descriptions.
const (
	maxClasses, maxRefusals = 32, 32
	maxNames                = 100
	maxFields               = 64
	maxDiff                 = 32 << 10
	maxWarnings             = 16
)

// answerOf puts what is foreseen into an answer.
func answerOf(f *machineconfig.Foresight) (ichor.TalosConfigPatchPreviewStatus, error) {
	changed, reboot := f.Changed()
	status := ichor.TalosConfigPatchPreviewStatus{
		Machines: ichor.PreviewCounts{
			Matched: int32(f.Matched), Changed: int32(changed), NeedReboot: int32(reboot), Refused: int32(f.Refused()),
			UnreachedByPatches: int32(f.NotReached), NotComputed: int32(f.NotComputed),
		},
		ClassesOmitted:  int32(max(0, len(f.Changes)-maxClasses)),
		RefusalsOmitted: int32(max(0, len(f.Refusals)-maxRefusals)),
		Warnings:        f.Warnings,
	}
	for i := range f.Changes[:min(len(f.Changes), maxClasses)] {
		class, err := classOf(&f.Changes[i])
		if err != nil {
			return status, err
		}
		status.Classes = append(status.Classes, class)
	}
	for i := range f.Refusals[:min(len(f.Refusals), maxRefusals)] {
		refusal := &f.Refusals[i]
		status.Refusals = append(status.Refusals, ichor.PreviewRefusal{
			Count: int32(len(refusal.Machines)), Machines: some(refusal.Machines), Patch: refusal.Patch, Path: refusal.Path, Reason: refusal.Reason,
		})
	}
	return status, nil
}

// classOf is a change, with its text.
func classOf(c *machineconfig.ForeseenChange) (ichor.PreviewClass, error) {
	class := ichor.PreviewClass{
		Count: int32(len(c.Machines)), Machines: some(c.Machines), NeedsReboot: len(c.Late) > 0, Before: c.Unknown,
		FieldsOmitted: int32(max(0, len(c.Differences)-maxFields)),
	}
	if c.Unknown != "" {
		return class, nil
	}
	late := map[string]bool{}
	for i := range c.Late {
		late[c.Late[i].Document+" "+c.Late[i].Path.String()] = true
	}
	for _, difference := range c.Differences[:min(len(c.Differences), maxFields)] {
		path := difference.Path.String()
		class.Fields = append(class.Fields, ichor.PreviewField{
			Document: difference.Document, Path: path, Was: difference.Have, Becomes: difference.Want, NeedsReboot: late[difference.Document+" "+path],
		})
	}
	before, after, err := c.Texts()
	if err != nil {
		return class, fmt.Errorf("redact what machine %s is given: %w", c.Machines[0], err)
	}
	diff := textdiff.Unified(c.Machines[0]+" now", c.Machines[0]+" with the change", string(before), string(after))
	class.Diff, class.DiffCut = textdiff.Cut(diff, maxDiff)
	return class, nil
}

// some are the first names.
func some(names []string) []string { return names[:min(len(names), maxNames)] }

// bounds cuts a list of warnings.
func bounds(warnings []string) []string { return warnings[:min(len(warnings), maxWarnings)] }
