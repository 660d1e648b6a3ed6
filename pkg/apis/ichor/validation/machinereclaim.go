// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/identity"
)

const maxWipeDisks = 64

// ValidateMachineReclaim judges a new reclaim. That the UUID is no live machine's is judged where machines are known.
func ValidateMachineReclaim(reclaim *ichor.MachineReclaim) field.ErrorList {
	path, spec := field.NewPath("spec"), &reclaim.Spec
	errs := objectName(reclaim.Name, field.NewPath("metadata", "name"))
	_, bad := ipAddress(spec.Address, path.Child("address"))
	errs = append(errs, bad...)
	switch {
	case spec.UUID == "":
		errs = append(errs, field.Required(path.Child("uuid"), "the machine's SMBIOS UUID, typed as consent to wipe it"))
	case !identity.IsUUID(spec.UUID):
		errs = append(errs, field.Invalid(path.Child("uuid"), spec.UUID, "must be a UUID, such as 4c4c4544-0051-3610-8052-b4c04f4c3132"))
	case identity.IsJunkUUID(spec.UUID):
		errs = append(errs, field.Invalid(path.Child("uuid"), spec.UUID, "is one that vendors give to many boards, so it is no consent to wipe this one"))
	}
	errs = append(errs, secretRef(spec.TalosconfigSecretRef, path.Child("talosconfigSecretRef"))...)
	disks := path.Child("wipeDisks")
	if len(spec.WipeDisks) > maxWipeDisks {
		errs = append(errs, field.TooMany(disks, len(spec.WipeDisks), maxWipeDisks))
	}
	seen := map[ichor.DiskMatch]bool{}
	for i, match := range spec.WipeDisks {
		switch {
		case match == ichor.DiskMatch{}:
			errs = append(errs, field.Required(disks.Index(i), "serial or wwid"))
		case seen[match]:
			errs = append(errs, field.Duplicate(disks.Index(i), describeMatch(match)))
		}
		seen[match] = true
	}
	return errs
}

// ValidateMachineReclaimUpdate judges a change through the main resource: none.
func ValidateMachineReclaimUpdate(reclaim, was *ichor.MachineReclaim) field.ErrorList {
	return frozen(reclaim.Spec, was.Spec, field.NewPath("spec"), "can't be changed; make another reclaim")
}

// ReclaimOver tells whether nothing will happen any more.
func ReclaimOver(reclaim *ichor.MachineReclaim) bool {
	switch reclaim.Status.Phase {
	case ichor.ReclaimSucceeded, ichor.ReclaimRefused, ichor.ReclaimFailed:
		return true
	}
	return false
}

// ValidateMachineReclaimStatusUpdate judges a status.
func ValidateMachineReclaimStatusUpdate(reclaim, was *ichor.MachineReclaim) field.ErrorList {
	path := field.NewPath("status")
	errs := conditions(reclaim.Status.Conditions, path)
	if reclaim.Status.Phase != "" {
		errs = append(errs, oneOf(reclaim.Status.Phase, path.Child("phase"), ichor.ReclaimPending, ichor.ReclaimInspecting, ichor.ReclaimResetting,
			ichor.ReclaimSucceeded, ichor.ReclaimRefused, ichor.ReclaimFailed)...)
	}
	if ReclaimOver(was) && reclaim.Status.Phase != was.Status.Phase {
		errs = append(errs, field.Forbidden(path.Child("phase"), string(was.Status.Phase)+" is final"))
	}
	return errs
}

// ReclaimWarnings tell of what is allowed and may be unwise.
func ReclaimWarnings(reclaim *ichor.MachineReclaim) []string {
	if reclaim.Spec.AcceptQuorumLoss {
		return []string{"spec.acceptQuorumLoss: the machine's own cluster may lose its etcd for good"}
	}
	return nil
}
