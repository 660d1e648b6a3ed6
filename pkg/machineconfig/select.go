// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// DefaultPriority is the priority of a patch that names none.
const DefaultPriority = 100

// PatchesFor are the patches that a machine is to have, in the order in which they are merged: those for the whole cluster
// first, then those for a role, those for a selector, and those for machines by name; among equals by priority, then by
// name. What is merged later has the last word. Patches that are disabled or being deleted are left out. The order in
// which patches are given makes no difference.
func PatchesFor(m *v1alpha1.TalosMachine, patches []*v1alpha1.TalosConfigPatch) []*v1alpha1.TalosConfigPatch {
	var chosen []*v1alpha1.TalosConfigPatch
	for _, patch := range patches {
		if !patch.Spec.Disabled && patch.DeletionTimestamp == nil && Targets(&patch.Spec.Target, m) {
			chosen = append(chosen, patch)
		}
	}
	slices.SortFunc(chosen, ComparePatches)
	return chosen
}

// ComparePatches is the order in which patches are merged.
func ComparePatches(a, b *v1alpha1.TalosConfigPatch) int {
	return cmp.Or(
		cmp.Compare(scope(&a.Spec.Target), scope(&b.Spec.Target)),
		cmp.Compare(Priority(a), Priority(b)),
		cmp.Compare(a.Name, b.Name),
	)
}

// Priority of a patch.
func Priority(patch *v1alpha1.TalosConfigPatch) int32 {
	if patch.Spec.Priority == nil {
		return DefaultPriority
	}
	return *patch.Spec.Priority
}

// scope is how narrow a target is.
func scope(target *v1alpha1.PatchTarget) int {
	switch {
	case len(target.MachineNames) > 0:
		return 3
	case target.MachineSelector != nil:
		return 2
	case target.Role != "":
		return 1
	default:
		return 0
	}
}

// DescribeTarget says for people which machines are meant.
func DescribeTarget(target *v1alpha1.PatchTarget) string {
	who := "machines"
	if target.Role != "" {
		who = string(target.Role) + " machines"
	}
	text := fmt.Sprintf("%s of cluster %s", who, target.ClusterRef.Name)
	if target.MachineSelector != nil {
		text += " with labels " + metav1.FormatLabelSelector(target.MachineSelector)
	}
	if names := len(target.MachineNames); names > 0 {
		text += fmt.Sprintf(" named in spec.target.machineNames (%d)", names)
	}
	return text
}

// Targets tells whether a machine, were it approved, is one that the target chooses: everything that is given must fit. A
// selector that can't be read chooses nothing; the API doesn't store one.
func Targets(target *v1alpha1.PatchTarget, m *v1alpha1.TalosMachine) bool {
	if target.ClusterRef.Name != m.Spec.ClusterRef.Name || target.Role != "" && target.Role != m.Spec.Role {
		return false
	}
	if len(target.MachineNames) > 0 && !slices.Contains(target.MachineNames, m.Name) {
		return false
	}
	if target.MachineSelector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(target.MachineSelector)
	return err == nil && selector.Matches(labels.Set(m.Labels))
}
