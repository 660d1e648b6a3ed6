// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// PatchChange is a patch before and after it is written. Before is nil if it isn't there yet, After if it is deleted.
type PatchChange struct {
	Before, After *v1alpha1.TalosConfigPatch
}

// Name of the patch.
func (c PatchChange) Name() string {
	if c.After != nil {
		return c.After.Name
	}
	return c.Before.Name
}

// Among are the patches that there are, as they would be then.
func (c PatchChange) Among(stored []*v1alpha1.TalosConfigPatch) []*v1alpha1.TalosConfigPatch {
	return c.side(stored, c.After)
}

func (c PatchChange) side(stored []*v1alpha1.TalosConfigPatch, patch *v1alpha1.TalosConfigPatch) []*v1alpha1.TalosConfigPatch {
	side := slices.DeleteFunc(slices.Clone(stored), func(other *v1alpha1.TalosConfigPatch) bool { return other.Name == c.Name() })
	if patch != nil {
		side = append(side, patch)
	}
	return side
}

// Foresight is what a change of a patch would do to the machines of a cluster.
type Foresight struct {
	// Matched machines are those that the patch would be for; of a patch that is deleted, those that it was for.
	Matched int
	// NotReached were adopted with a configuration of their own, which they keep.
	NotReached int
	// NotComputed are those for which the time didn't suffice; the rest is incomplete if there are any.
	NotComputed int
	// Changes are what machines would get, the largest number of machines first.
	Changes []ForeseenChange
	// Refusals are the machines that couldn't have it, the largest number first.
	Refusals []ForeseenRefusal
	// Warnings are what else there is to know.
	Warnings []string
}

// ForeseenChange is a change that some machines get.
type ForeseenChange struct {
	// Machines by name, sorted.
	Machines []string
	// Differences between what they would be given and what they are given now, secrets replaced.
	Differences []Difference
	// Late are those of the differences that count from a reboot on only.
	Late []Difference
	// Unknown says why nothing can be rendered for them now; there are no differences then.
	Unknown string

	before, after []byte
	masks         Masks
}

// Texts are the configurations of the first machine, now and then, every secret replaced.
func (c *ForeseenChange) Texts() (before, after []byte, err error) {
	if before, err = Redact(c.before, c.masks); err != nil {
		return nil, nil, err
	}
	after, err = Redact(c.after, c.masks)
	return before, after, err
}

// ForeseenRefusal is a reason for which some machines couldn't have the patch.
type ForeseenRefusal struct {
	// Machines by name, sorted.
	Machines []string
	// Patch and Path are at fault, empty if it is none, or no single field.
	Patch, Path string
	Reason      string
}

// Changed counts the machines that would be given another configuration, and those of them that would need a reboot.
func (f *Foresight) Changed() (changed, needReboot int) {
	for i := range f.Changes {
		changed += len(f.Changes[i].Machines)
		if len(f.Changes[i].Late) > 0 {
			needReboot += len(f.Changes[i].Machines)
		}
	}
	return changed, needReboot
}

// Refused counts the machines that couldn't have the patch.
func (f *Foresight) Refused() int {
	refused := 0
	for i := range f.Refusals {
		refused += len(f.Refusals[i].Machines)
	}
	return refused
}

// Foresee tells what a change of a patch would do to the machines of its cluster, with placeholders for every secret.
// Machines that the patch isn't for, neither before nor after, can't change and aren't looked at. Those that can only get
// the same are rendered once. When the context ends, what there is by then is the answer.
func Foresee(ctx context.Context, cluster *v1alpha1.TalosCluster, machines []*v1alpha1.TalosMachine, stored []*v1alpha1.TalosConfigPatch, change PatchChange) (*Foresight, error) {
	bundle, err := placeholderBundle()
	if err != nil {
		return nil, err
	}
	f := &foreseeing{cluster: cluster, bundle: bundle, change: change, compiled: map[*v1alpha1.TalosConfigPatch]compiledPatch{}, Foresight: &Foresight{}}
	f.before, f.after = change.side(stored, change.Before), change.side(stored, change.After)
	classes := f.classes(ctx, machines)
	outcomes := newOutcomes()
	for _, class := range classes {
		if ctx.Err() != nil {
			f.NotComputed += len(class.machines)
			continue
		}
		if err := f.judge(class, outcomes); err != nil {
			return nil, err
		}
	}
	f.Changes, f.Refusals = outcomes.sorted()
	slices.Sort(f.Warnings)
	f.Warnings = slices.Compact(f.Warnings)
	return f.Foresight, nil
}

// judge renders one machine of a class before and after.
func (f *foreseeing) judge(class *class, outcomes *outcomes) error {
	m := class.machines[0]
	before, beforeErr := f.rendered(m, f.before)
	after, afterErr := f.rendered(m, f.after)
	var fault *PatchError
	switch {
	case afterErr != nil && errors.As(afterErr, &fault) && (fault.Patch == f.change.Name() || beforeErr == nil):
		outcomes.refuse(class, ForeseenRefusal{Patch: fault.Patch, Path: fault.Path, Reason: fault.Reason})
		return nil
	case afterErr != nil && beforeErr == nil:
		outcomes.refuse(class, ForeseenRefusal{Reason: afterErr.Error()})
		return nil
	case afterErr != nil:
		f.warn(fmt.Sprintf("%d of the machines can't be given anything with or without the patch, for instance %s: %s", len(class.machines), m.Name, afterErr))
		return nil
	case beforeErr != nil:
		outcomes.change(class, ForeseenChange{Unknown: beforeErr.Error(), after: after.text, masks: after.masks})
		return nil
	}
	for _, warning := range after.warnings {
		f.warn(warning)
	}
	if slices.Equal(before.text, after.text) {
		return nil
	}
	masks := before.masks.Join(after.masks)
	differences, err := Compare(after.text, before.text, masks)
	if err != nil {
		return err
	}
	if len(differences) > 0 {
		outcomes.change(class, ForeseenChange{
			Differences: differences, Late: NeedsReboot(differences, m.Status.TalosVersion), before: before.text, after: after.text, masks: masks,
		})
	}
	return nil
}

func (f *foreseeing) warn(text string) { f.Warnings = append(f.Warnings, text) }

// foreseen is a rendering of one side.
type foreseen struct {
	text     []byte
	masks    Masks
	warnings []string
}

// rendered is what a machine is given with these patches.
func (f *foreseeing) rendered(m *v1alpha1.TalosMachine, patches []*v1alpha1.TalosConfigPatch) (*foreseen, error) {
	in := previewInputs(f.bundle, f.cluster, m)
	for _, patch := range PatchesFor(m, patches) {
		made := f.compile(patch)
		if made.err != nil {
			return nil, made.err
		}
		in.Patches = append(in.Patches, made.patch)
	}
	rendering, text, unjudged, err := renderUnjudged(in)
	if err != nil {
		return nil, err
	}
	warnings := rendering.warnings
	for _, name := range unjudged {
		warnings = append(warnings, unjudgedWarning(name))
	}
	return &foreseen{text: text, masks: MasksOf(in.Patches), warnings: warnings}, nil
}

// compiledPatch is a patch that is ready, or can't be.
type compiledPatch struct {
	patch *Patch
	err   error
}

func (f *foreseeing) compile(patch *v1alpha1.TalosConfigPatch) compiledPatch {
	made, there := f.compiled[patch]
	if !there {
		made.patch, made.err = Compile(patch, f.cluster.Spec.CNI.Cilium != nil, placeholderValue)
		f.compiled[patch] = made
	}
	return made
}

// byNumber puts the largest number of machines first, and among equals the first name.
func byNumber(a, b []string) int {
	return cmp.Or(cmp.Compare(len(b), len(a)), slices.Compare(a, b))
}
