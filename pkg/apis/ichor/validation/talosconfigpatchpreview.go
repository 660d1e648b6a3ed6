// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// ValidateTalosConfigPatchPreview judges a question about a patch; the patch in it is judged as one that is written.
func ValidateTalosConfigPatchPreview(preview *ichor.TalosConfigPatchPreview) field.ErrorList {
	var errs field.ErrorList
	spec, path := &preview.Spec, field.NewPath("spec")
	switch spec.Change {
	case ichor.PatchWrite:
		if spec.Patch == nil {
			errs = append(errs, field.Required(path.Child("patch"), "is what would be written; to ask what deleting the patch would do, set change to Delete"))
		}
	case ichor.PatchDelete:
		if spec.Patch != nil {
			errs = append(errs, field.Forbidden(path.Child("patch"), "a patch that is deleted has no new spec"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("change"), spec.Change, []ichor.PatchChange{ichor.PatchWrite, ichor.PatchDelete}))
	}
	if spec.Render != nil && spec.Render.Machine == "" {
		errs = append(errs, field.Required(path.Child("render", "machine"), "is the machine whose configuration is wanted"))
	}
	return errs
}
