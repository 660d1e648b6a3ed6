// SPDX-License-Identifier: Apache-2.0

package configpatch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
)

// Reasons of conditions.
const (
	reasonApplied     = "Applied"
	reasonNoMachines  = "NoMachines"
	reasonProgressing = "Progressing"
	reasonDisabled    = "Disabled"
	reasonConflict    = "Conflict"
	reasonAlone       = "NoConflict"
)

// maxRefusals is how many machines that can't have a patch are listed; all are counted.
const maxRefusals = 32

// summarize is the status of a patch, from its machines' status alone.
func summarize(patch *v1alpha1.TalosConfigPatch, machines []*v1alpha1.TalosMachine, conflicts []machineconfig.Conflict) v1alpha1.TalosConfigPatchStatus {
	status := *patch.Status.DeepCopy()
	status.ObservedGeneration = patch.Generation
	status.Machines, status.Refusals = v1alpha1.PatchCounts{}, nil
	for _, m := range machines {
		if m.Spec.ApprovalState != v1alpha1.ApprovalApproved || m.DeletionTimestamp != nil || !machineconfig.Targets(&patch.Spec.Target, m) {
			continue
		}
		count(&status, patch, m)
	}
	slices.SortFunc(status.Refusals, func(a, b v1alpha1.PatchRefusal) int { return cmp.Compare(a.Machine, b.Machine) })
	status.Refusals = status.Refusals[:min(len(status.Refusals), maxRefusals)]
	if len(status.Refusals) == 0 {
		status.Refusals = nil
	}
	ready(&status, patch)
	disagreement(&status, patch, conflicts)
	return status
}

// count adds a machine of the target.
func count(status *v1alpha1.TalosConfigPatchStatus, patch *v1alpha1.TalosConfigPatch, m *v1alpha1.TalosMachine) {
	status.Machines.Matched++
	config := m.Status.Config
	if config == nil || patch.Spec.Disabled {
		return
	}
	switch {
	case config.Refused != nil && config.Refused.Name == patch.Name:
		status.Machines.Refused++
		status.Refusals = append(status.Refusals, v1alpha1.PatchRefusal{Machine: m.Name, Path: config.Refused.Path, Reason: config.Refused.Reason})
	case has(config, patch):
		status.Machines.Applied++
	case config.PendingReboot:
		status.Machines.PendingReboot++
	}
}

// has tells whether a machine runs with the patch as it is now.
func has(config *v1alpha1.MachineConfigStatus, patch *v1alpha1.TalosConfigPatch) bool {
	return config.AppliedHash != "" && slices.ContainsFunc(config.Patches, func(input v1alpha1.ConfigInput) bool {
		return input.Name == patch.Name && input.Generation == patch.Generation
	})
}

// ready says in one condition how far the patch has come.
func ready(status *v1alpha1.TalosConfigPatchStatus, patch *v1alpha1.TalosConfigPatch) {
	condition := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: patch.Generation}
	counts := status.Machines
	switch {
	case patch.Spec.Disabled:
		condition.Status, condition.Reason = metav1.ConditionTrue, reasonDisabled
		condition.Message = "the patch is disabled and in no machine's configuration"
	case counts.Refused > 0:
		first := status.Refusals[0]
		where := first.Path
		if where != "" {
			where += ": "
		}
		condition.Reason = v1alpha1.ReasonPatchRefused
		condition.Message = fmt.Sprintf("%d of %d machines can't have it and keep their last good configuration, for instance %s: %s%s", counts.Refused, counts.Matched, first.Machine, where, first.Reason)
	case counts.Matched == 0:
		condition.Status, condition.Reason = metav1.ConditionTrue, reasonNoMachines
		condition.Message = "there are no approved " + machineconfig.DescribeTarget(&patch.Spec.Target)
	case counts.Applied == counts.Matched:
		condition.Status, condition.Reason = metav1.ConditionTrue, reasonApplied
		condition.Message = fmt.Sprintf("all %d machines run with it", counts.Matched)
	case counts.Applied+counts.PendingReboot == counts.Matched:
		condition.Reason = v1alpha1.ReasonPendingReboot
		condition.Message = fmt.Sprintf("%d of %d machines run with it, %d wait for a reboot: an operation of type configRollout brings it", counts.Applied, counts.Matched, counts.PendingReboot)
	default:
		condition.Reason = reasonProgressing
		condition.Message = fmt.Sprintf("%d of %d machines run with it", counts.Applied, counts.Matched)
	}
	meta.SetStatusCondition(&status.Conditions, condition)
}

// disagreement says with which patches this one disagrees, and who has the last word.
func disagreement(status *v1alpha1.TalosConfigPatchStatus, patch *v1alpha1.TalosConfigPatch, conflicts []machineconfig.Conflict) {
	var said []string
	for _, conflict := range conflicts {
		field := conflict.Document + " " + conflict.Path
		if conflict.Document == machineconfig.MainDocument {
			field = conflict.Path
		}
		switch patch.Name {
		case conflict.Winner:
			said = append(said, fmt.Sprintf("%s, which patch %s sets to something else, is set by this one", field, conflict.Loser))
		case conflict.Loser:
			said = append(said, fmt.Sprintf("%s is set by patch %s, which is merged later", field, conflict.Winner))
		}
	}
	slices.Sort(said)
	said = slices.Compact(said)
	condition := metav1.Condition{
		Type: v1alpha1.ConditionConflicting, Status: metav1.ConditionFalse, Reason: reasonAlone, ObservedGeneration: patch.Generation,
		Message: "no other patch sets the same fields to something else",
	}
	const most = 5
	if len(said) > 0 {
		condition.Status, condition.Reason = metav1.ConditionTrue, reasonConflict
		if more := len(said) - most; more > 0 {
			said = append(said[:most], fmt.Sprintf("and %d more", more))
		}
		condition.Message = strings.Join(said, "; ")
	}
	meta.SetStatusCondition(&status.Conditions, condition)
}
