// SPDX-License-Identifier: Apache-2.0

package configpatch

import (
	"strings"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
)

// hidden stands for every value of a Secret: two patches that take one from there aren't said to disagree.
func hidden(v1alpha1.SecretKeyReference) (string, error) { return machineconfig.SecretPlaceholder, nil }

// disagreements are the conflicts between patches that meet on a machine. Machines with the same patches in the same role
// have the same ones, so each set is looked at once.
func disagreements(patches []*v1alpha1.TalosConfigPatch, machines []*v1alpha1.TalosMachine) []machineconfig.Conflict {
	ready := map[string]*machineconfig.Patch{}
	seen := map[string]bool{}
	var conflicts []machineconfig.Conflict
	for _, m := range machines {
		if m.Spec.ApprovalState != v1alpha1.ApprovalApproved || m.DeletionTimestamp != nil {
			continue
		}
		chosen := machineconfig.PatchesFor(m, patches)
		set := string(m.Spec.Role)
		var meet []*machineconfig.Patch
		for _, patch := range chosen {
			set += "/" + patch.Name
			if _, tried := ready[patch.Name]; !tried {
				// One that can't be made ready is refused on the machines themselves.
				ready[patch.Name], _ = machineconfig.Compile(patch, false, hidden)
			}
			if made := ready[patch.Name]; made != nil {
				meet = append(meet, made)
			}
		}
		if len(meet) > 1 && !seen[set] {
			seen[set] = true
			conflicts = append(conflicts, machineconfig.Conflicts(meet, m.Spec.Role == v1alpha1.RoleControlPlane)...)
		}
	}
	return unique(conflicts)
}

func unique(conflicts []machineconfig.Conflict) []machineconfig.Conflict {
	seen := map[string]bool{}
	var once []machineconfig.Conflict
	for _, conflict := range conflicts {
		id := strings.Join([]string{conflict.Document, conflict.Path, conflict.Loser, conflict.Winner}, "\x00")
		if !seen[id] {
			seen[id] = true
			once = append(once, conflict)
		}
	}
	return once
}
