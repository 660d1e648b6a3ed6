// SPDX-License-Identifier: Apache-2.0

package ichor

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosConfigPatchPreview asks what machines would be given if a TalosConfigPatch was written, or deleted. It is created at
// the subresource talosconfigpatches/preview of that patch, which needn't be there yet; the answer is in its status.
// Nothing is stored, no machine is asked, and every secret is replaced.
type TalosConfigPatchPreview struct {
	metav1.TypeMeta
	// metadata has the patch's name.
	metav1.ObjectMeta
	// spec is what is asked.
	Spec TalosConfigPatchPreviewSpec
	// status is the answer, filled in by the server.
	Status TalosConfigPatchPreviewStatus
}

// PatchChange is what would be done to a patch.
type PatchChange string

// What can be done to a patch.
const (
	PatchWrite  PatchChange = "Write"
	PatchDelete PatchChange = "Delete"
)

// TalosConfigPatchPreviewSpec is what is asked.
type TalosConfigPatchPreviewSpec struct {
	// change is Write (the patch is created, or replaced by spec.patch) or Delete. Defaults to Write.
	Change PatchChange
	// patch is the spec that the patch would have. It is judged as that of a TalosConfigPatch, and refused in the same words.
	// Required for Write, refused for Delete.
	Patch *TalosConfigPatchSpec
	// render asks besides for the whole configuration of one machine.
	Render *PreviewRender
}

// PreviewRender asks for the configuration of one machine.
type PreviewRender struct {
	// machine is the name of an approved TalosMachine.
	Machine string
	// alone leaves all other patches out. Defaults to false.
	Alone bool
}

// TalosConfigPatchPreviewStatus is the answer.
type TalosConfigPatchPreviewStatus struct {
	// machines counts the approved machines that the patch is for, as it is or as it would be.
	Machines PreviewCounts
	// classes are the changes that machines would get, each with the machines that get it; those of most machines first, at
	// most 32.
	Classes []PreviewClass
	// classesOmitted is how many classes are left out of classes.
	ClassesOmitted int32
	// refusals say which machines couldn't have the patch, and why; those of most machines first, at most 32.
	Refusals []PreviewRefusal
	// refusalsOmitted is how many refusals are left out of refusals.
	RefusalsOmitted int32
	// configuration is what spec.render asks for, in YAML, secrets replaced by asterisks.
	Configuration string
	// warnings are what else there is to know: what deletes nothing, and what can't be foreseen. At most 16.
	Warnings []string
}

// PreviewCounts counts machines.
type PreviewCounts struct {
	// matched machines are those that the patch would be for.
	Matched int32
	// changed machines would be given another configuration.
	Changed int32
	// needReboot machines are those of the changed ones that would need a reboot for some of it.
	NeedReboot int32
	// refused machines couldn't have it, and would keep their last good configuration.
	Refused int32
	// unreachedByPatches were adopted with a configuration of their own, which they keep.
	UnreachedByPatches int32
	// notComputed machines are those for which there was no time. With any, the other counts are too low.
	NotComputed int32
}

// PreviewClass is a change, with the machines that get it.
type PreviewClass struct {
	// count is how many machines there are.
	Count int32
	// machines are the names of the TalosMachines, sorted, at most 100.
	Machines []string
	// fields are the fields that differ, at most 64.
	Fields []PreviewField
	// fieldsOmitted is how many fields are left out of fields.
	FieldsOmitted int32
	// needsReboot is true if some of the fields, also of those left out, count from a reboot on only.
	NeedsReboot bool
	// diff is the change in the format of diff(1), of the whole configuration of the first machine.
	Diff string
	// diffCut is true if the diff is longer than 32 KiB, and is cut there.
	DiffCut bool
	// before says why the machines have no configuration to compare with; what changes isn't known then.
	Before string
}

// PreviewField is a field that differs.
type PreviewField struct {
	// document that the field is in: v1alpha1, or the kind and name of another one. Example: UserVolumeConfig/data
	Document string
	// path of the field in the document; empty for the whole document. Example: machine.sysctls["net.core.somaxconn"]
	Path string
	// was is the value that there was, for people: secrets replaced, cut after 256 characters, empty if it was absent.
	Was string
	// becomes is the value that there would be, in the same way.
	Becomes string
	// needsReboot is true if the change counts from a reboot on only.
	NeedsReboot bool
}

// PreviewRefusal says why machines couldn't have a patch.
type PreviewRefusal struct {
	// count is how many machines there are.
	Count int32
	// machines are the names of the TalosMachines, sorted, at most 100.
	Machines []string
	// patch is the TalosConfigPatch at fault: this one, or one that doesn't go with it. Empty if it is none.
	Patch string
	// path is the faulty field of the patch; empty if it is no single one.
	Path string
	// reason says what is wrong.
	Reason string
}
