// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosConfigPatchPreview asks what machines would be given if a TalosConfigPatch was written, or deleted. It is created at
// the subresource talosconfigpatches/preview of that patch, which needn't be there yet; the answer is in its status.
// Nothing is stored, no machine is asked, and every secret is replaced.
type TalosConfigPatchPreview struct {
	metav1.TypeMeta `json:",inline"`
	// metadata has the patch's name.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is what is asked.
	Spec TalosConfigPatchPreviewSpec `json:"spec"`
	// status is the answer, filled in by the server.
	// +optional
	Status TalosConfigPatchPreviewStatus `json:"status,omitempty"`
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
	// +optional
	Change PatchChange `json:"change,omitempty"`
	// patch is the spec that the patch would have. It is judged as that of a TalosConfigPatch, and refused in the same words.
	// Required for Write, refused for Delete.
	// +optional
	Patch *TalosConfigPatchSpec `json:"patch,omitempty"`
	// render asks besides for the whole configuration of one machine.
	// +optional
	Render *PreviewRender `json:"render,omitempty"`
}

// PreviewRender asks for the configuration of one machine.
type PreviewRender struct {
	// machine is the name of an approved TalosMachine.
	Machine string `json:"machine"`
	// alone leaves all other patches out. Defaults to false.
	// +optional
	Alone bool `json:"alone,omitempty"`
}

// TalosConfigPatchPreviewStatus is the answer.
type TalosConfigPatchPreviewStatus struct {
	// machines counts the approved machines that the patch is for, as it is or as it would be.
	// +optional
	Machines PreviewCounts `json:"machines,omitempty"`
	// classes are the changes that machines would get, each with the machines that get it; those of most machines first, at
	// most 32.
	// +optional
	// +listType=atomic
	Classes []PreviewClass `json:"classes,omitempty"`
	// classesOmitted is how many classes are left out of classes.
	// +optional
	ClassesOmitted int32 `json:"classesOmitted,omitempty"`
	// refusals say which machines couldn't have the patch, and why; those of most machines first, at most 32.
	// +optional
	// +listType=atomic
	Refusals []PreviewRefusal `json:"refusals,omitempty"`
	// refusalsOmitted is how many refusals are left out of refusals.
	// +optional
	RefusalsOmitted int32 `json:"refusalsOmitted,omitempty"`
	// configuration is what spec.render asks for, in YAML, secrets replaced by asterisks.
	// +optional
	Configuration string `json:"configuration,omitempty"`
	// warnings are what else there is to know: what deletes nothing, and what can't be foreseen. At most 16.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}

// PreviewCounts counts machines.
type PreviewCounts struct {
	// matched machines are those that the patch would be for.
	// +optional
	Matched int32 `json:"matched,omitempty"`
	// changed machines would be given another configuration.
	// +optional
	Changed int32 `json:"changed,omitempty"`
	// needReboot machines are those of the changed ones that would need a reboot for some of it.
	// +optional
	NeedReboot int32 `json:"needReboot,omitempty"`
	// refused machines couldn't have it, and would keep their last good configuration.
	// +optional
	Refused int32 `json:"refused,omitempty"`
	// unreachedByPatches were adopted with a configuration of their own, which they keep.
	// +optional
	UnreachedByPatches int32 `json:"unreachedByPatches,omitempty"`
	// notComputed machines are those for which there was no time. With any, the other counts are too low.
	// +optional
	NotComputed int32 `json:"notComputed,omitempty"`
}

// PreviewClass is a change, with the machines that get it.
type PreviewClass struct {
	// count is how many machines there are.
	Count int32 `json:"count"`
	// machines are the names of the TalosMachines, sorted, at most 100.
	// +listType=atomic
	Machines []string `json:"machines"`
	// fields are the fields that differ, at most 64.
	// +optional
	// +listType=atomic
	Fields []PreviewField `json:"fields,omitempty"`
	// fieldsOmitted is how many fields are left out of fields.
	// +optional
	FieldsOmitted int32 `json:"fieldsOmitted,omitempty"`
	// needsReboot is true if some of the fields, also of those left out, count from a reboot on only.
	// +optional
	NeedsReboot bool `json:"needsReboot,omitempty"`
	// diff is the change in the format of diff(1), of the whole configuration of the first machine.
	// +optional
	Diff string `json:"diff,omitempty"`
	// diffCut is true if the diff is longer than 32 KiB, and is cut there.
	// +optional
	DiffCut bool `json:"diffCut,omitempty"`
	// before says why the machines have no configuration to compare with; what changes isn't known then.
	// +optional
	Before string `json:"before,omitempty"`
}

// PreviewField is a field that differs.
type PreviewField struct {
	// document that the field is in: v1alpha1, or the kind and name of another one. Example: UserVolumeConfig/data
	Document string `json:"document"`
	// path of the field in the document; empty for the whole document. Example: machine.sysctls["net.core.somaxconn"]
	// +optional
	Path string `json:"path,omitempty"`
	// was is the value that there was, for people: secrets replaced, cut after 256 characters, empty if it was absent.
	// +optional
	Was string `json:"was,omitempty"`
	// becomes is the value that there would be, in the same way.
	// +optional
	Becomes string `json:"becomes,omitempty"`
	// needsReboot is true if the change counts from a reboot on only.
	// +optional
	NeedsReboot bool `json:"needsReboot,omitempty"`
}

// PreviewRefusal says why machines couldn't have a patch.
type PreviewRefusal struct {
	// count is how many machines there are.
	Count int32 `json:"count"`
	// machines are the names of the TalosMachines, sorted, at most 100.
	// +listType=atomic
	Machines []string `json:"machines"`
	// patch is the TalosConfigPatch at fault: this one, or one that doesn't go with it. Empty if it is none.
	// +optional
	Patch string `json:"patch,omitempty"`
	// path is the faulty field of the patch; empty if it is no single one.
	// +optional
	Path string `json:"path,omitempty"`
	// reason says what is wrong.
	Reason string `json:"reason"`
}
