// SPDX-License-Identifier: Apache-2.0

// Package rollback says what a person would change to give a machine back a configuration that it had: which of the things
// that it was made of are others by now, and what to type. It changes nothing, and reads nothing.
package rollback

import (
	"cmp"
	"fmt"
	"strings"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
)

// Step is one thing that is another one by now.
type Step struct {
	// What it is, for instance "patch tuning".
	What string
	// Since says what became of it.
	Since string
	// Do is a command to type; empty where none does it.
	Do string
	// Note says what to do besides, or instead.
	Note string
}

// Now is what the machine's configuration is made of now.
type Now struct {
	Machine *v1alpha1.TalosMachine
	Cluster *v1alpha1.TalosCluster
	// Patches are all there are.
	Patches []v1alpha1.TalosConfigPatch
}

// Steps compare what a configuration was made of with what there is now. Program is how this program is called. They are in
// the order in which a configuration is made: cluster, patches, approval; versions last.
func Steps(then *v1alpha1.ConfigRevisionInputs, now Now, program string) []Step {
	var steps []Step
	if was, is := then.Cluster, now.Cluster; was.UID != is.UID || was.Generation != is.Generation {
		step := Step{What: "cluster " + is.Name, Since: changed(was.Generation, is.Generation), Do: "kubectl edit taloscluster " + is.Name}
		if was.UID != is.UID {
			step.Since = "is another object of the name"
		}
		steps = append(steps, step)
	}
	steps = append(steps, patchSteps(then.Patches, now)...)
	if approval := now.Machine.Spec.Approval; approval != nil && (approval.By != then.ApprovedBy || !approval.At.Equal(then.ApprovedAt)) {
		since := "was approved anew"
		if approval.By != "" {
			since += " by " + approval.By
		}
		steps = append(steps, Step{
			What: "approval", Since: since, Do: program + " machine approve " + now.Machine.Name,
			Note: "labels, network and disks for data can be decided again; role, install disk and a control plane's hostname can't",
		})
	}
	if is := now.Machine.Status.SettledVersions; is != nil && *is != then.Versions {
		steps = append(steps, Step{What: "versions", Since: versions(&then.Versions, is), Note: "operations change them, and nothing else does"})
	}
	return steps
}

func patchSteps(then []v1alpha1.ObjectGeneration, now Now) []Step {
	all, existing := make([]*v1alpha1.TalosConfigPatch, 0, len(now.Patches)), map[string]*v1alpha1.TalosConfigPatch{}
	for i := range now.Patches {
		all = append(all, &now.Patches[i])
		existing[now.Patches[i].Name] = &now.Patches[i]
	}
	used, had := map[string]bool{}, map[string]bool{}
	for _, was := range then {
		had[was.Name] = true
	}
	merged := machineconfig.PatchesFor(now.Machine, all)
	for _, patch := range merged {
		used[patch.Name] = true
	}
	var steps []Step
	for _, was := range then {
		if step := patchStep(was, existing[was.Name], used[was.Name]); step != nil {
			steps = append(steps, *step)
		}
	}
	for _, patch := range merged {
		if had[patch.Name] {
			continue
		}
		steps = append(steps, Step{
			What: "patch " + patch.Name, Since: fmt.Sprintf("added since (generation %d)", patch.Generation),
			Do:   fmt.Sprintf(`kubectl patch talosconfigpatch %s --type=merge -p '{"spec":{"disabled":true}}'`, patch.Name),
			Note: reach(patch),
		})
	}
	return steps
}

// patchStep is about a patch that was merged; nil if it is as it was.
func patchStep(was v1alpha1.ObjectGeneration, is *v1alpha1.TalosConfigPatch, used bool) *Step {
	step := &Step{What: "patch " + was.Name}
	switch {
	case is == nil:
		step.Since, step.Do = fmt.Sprintf("removed since (it was generation %d)", was.Generation), "kubectl apply -f FILE"
		step.Note = "its text is kept nowhere; the lines that it gave are in the difference below"
	case !used && is.Spec.Disabled:
		step.Since = fmt.Sprintf("disabled since (generation %d to %d)", was.Generation, is.Generation)
		step.Do = fmt.Sprintf(`kubectl patch talosconfigpatch %s --type=merge -p '{"spec":{"disabled":false}}'`, was.Name)
		step.Note = reach(is)
	case !used:
		step.Since, step.Do = fmt.Sprintf("isn't for the machine any more (generation %d to %d)", was.Generation, is.Generation), "kubectl edit talosconfigpatch "+was.Name
		step.Note = "its target, or the labels of the machine, changed"
	case was.UID != "" && was.UID != is.UID:
		step.Since, step.Do, step.Note = fmt.Sprintf("deleted and made anew since (generation %d)", is.Generation), "kubectl edit talosconfigpatch "+was.Name, reach(is)
	case was.Generation != is.Generation:
		step.Since, step.Do, step.Note = changed(was.Generation, is.Generation), "kubectl edit talosconfigpatch "+was.Name, reach(is)
	default:
		return nil
	}
	return step
}

// reach warns of a patch that other machines have too.
func reach(patch *v1alpha1.TalosConfigPatch) string {
	if names := patch.Spec.Target.MachineNames; len(names) == 1 {
		return ""
	}
	if matched := patch.Status.Machines.Matched; matched > 1 {
		return fmt.Sprintf("it is for %d machines", matched)
	}
	return "it may be for other machines too"
}

func changed(from, to int64) string {
	return fmt.Sprintf("changed since (generation %d to %d)", from, to)
}

func versions(was, is *v1alpha1.SettledVersions) string {
	var parts []string
	for _, each := range []struct{ what, was, is string }{
		{"Talos", was.Talos, is.Talos}, {"Kubernetes", was.Kubernetes, is.Kubernetes}, {"schematic", was.SchematicID, is.SchematicID},
		{"configuration for Talos", was.ConfigContract, is.ConfigContract},
	} {
		if each.was != each.is {
			parts = append(parts, fmt.Sprintf("%s %s to %s", each.what, cmp.Or(each.was, "none"), cmp.Or(each.is, "none")))
		}
	}
	return "settled anew since: " + strings.Join(parts, ", ")
}
