// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Bounds of a TalosMachine.
const (
	maxMACAddresses = 64
	maxSerialNumber = 256
	maxHistory      = 8
	maxDrift        = 256
)

// ValidateTalosMachine judges a new machine.
func ValidateTalosMachine(machine *ichor.TalosMachine) field.ErrorList {
	errs := validateMain(machine)
	errs = append(errs, validateRemovalUpdate(machine, machine, field.NewPath("spec", "removal"))...)
	id := identity.Identity(machine.Spec.Identity)
	if identity.NameFits(id, machine.Name) {
		return errs
	}
	want, strong := identity.Name(id, "")
	why := fmt.Sprintf("a machine is named by its UUID in lower case, so that one UUID is one machine: %q", want)
	if !strong {
		why = fmt.Sprintf("the machine's UUID can't name it, so its name is made of its serial number and MAC addresses: %q", want)
	}
	return append(errs, field.Invalid(field.NewPath("metadata", "name"), machine.Name, why))
}

// ValidateTalosMachineUpdate judges a change through the main resource.
func ValidateTalosMachineUpdate(machine, was *ichor.TalosMachine) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateMain(machine)
	errs = append(errs, immutable(machine.Spec.Identity, was.Spec.Identity, path.Child("identity"), "can't be changed: it says which machine this is")...)
	errs = append(errs, immutable(machine.Spec.Origin, was.Spec.Origin, path.Child("origin"), "can't be changed")...)
	errs = append(errs, validateRemovalUpdate(machine, was, path.Child("removal"))...)
	if was.DeletionTimestamp != nil && was.Spec.DeletionPolicy == ichor.DeletionOrphan {
		errs = append(errs, immutable(machine.Spec.DeletionPolicy, was.Spec.DeletionPolicy, path.Child("deletionPolicy"),
			"can't be changed while the machine is being removed as it is: whoever deleted it was asked for that, and not whether it may be wiped")...)
	}
	if was.Spec.ApprovalState == ichor.ApprovalApproved {
		errs = append(errs, immutable(machine.Spec.ClusterRef.Name, was.Spec.ClusterRef.Name, path.Child("clusterRef", "name"),
			"can't be changed once the machine is approved; remove the machine and approve it into the other cluster")...)
	}
	return errs
}

// validateMain judges what the main resource holds.
func validateMain(machine *ichor.TalosMachine) field.ErrorList {
	path, spec := field.NewPath("spec"), &machine.Spec
	var errs field.ErrorList
	if spec.ClusterRef.Name != "" {
		errs = append(errs, name(spec.ClusterRef.Name, path.Child("clusterRef", "name"), utilvalidation.IsDNS1123Label)...)
	}
	errs = append(errs, validateIdentity(&spec.Identity, path.Child("identity"))...)
	errs = append(errs, oneOf(spec.Origin, path.Child("origin"), ichor.MachineDiscovered, ichor.MachineAdopted)...)
	switch {
	case spec.Origin == ichor.MachineAdopted && spec.Address == "":
		errs = append(errs, field.Required(path.Child("address"), "where the adopted machine is dialled"))
	case spec.Origin == ichor.MachineDiscovered && spec.Address != "":
		errs = append(errs, field.Forbidden(path.Child("address"), "is for adopted machines; a discovered one is found by spec.discovery of its cluster"))
	case spec.Address != "":
		_, bad := ipAddress(spec.Address, path.Child("address"))
		errs = append(errs, bad...)
	}
	return append(errs, oneOf(spec.DeletionPolicy, path.Child("deletionPolicy"), ichor.DeletionReset, ichor.DeletionOrphan)...)
}

func validateIdentity(id *ichor.MachineIdentity, path *field.Path) field.ErrorList {
	errs := tooLong(id.UUID, maxSerialNumber, path.Child("uuid"))
	errs = append(errs, tooLong(id.SerialNumber, maxSerialNumber, path.Child("serialNumber"))...)
	if len(id.MACAddresses) > maxMACAddresses {
		errs = append(errs, field.TooMany(path.Child("macAddresses"), len(id.MACAddresses), maxMACAddresses))
	}
	return errs
}

// SameIdentity tells whether two identities say the same.
func SameIdentity(a, b ichor.MachineIdentity) bool {
	return identity.Equal(identity.Identity(a), identity.Identity(b))
}

// DescribeIdentity says in words which machine an identity means.
func DescribeIdentity(id ichor.MachineIdentity) string {
	return fmt.Sprintf("UUID %q, serial number %q, MAC addresses %q", id.UUID, id.SerialNumber, id.MACAddresses)
}

// IdentityDoubt says why it isn't sure which machine this is; empty where it is. A person's word ends the doubt.
func IdentityDoubt(machine *ichor.TalosMachine) string {
	if word := machine.Spec.IdentityResolution; word != nil {
		if word.Decision == ichor.IdentityDistinct {
			return ""
		}
		return fmt.Sprintf("%s said that it is the same as machine %s", word.By, word.Machine)
	}
	if condition := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionIdentityResolved); condition != nil &&
		condition.Status == metav1.ConditionFalse {
		return condition.Message
	}
	if strings.HasPrefix(machine.Name, identity.WeakPrefix) {
		return fmt.Sprintf("its UUID %q is no good or another machine's", machine.Spec.Identity.UUID)
	}
	return ""
}

// ValidateTalosMachineIdentityUpdate judges a person's word on a doubtful identity.
func ValidateTalosMachineIdentityUpdate(machine, was *ichor.TalosMachine, facts ApprovalFacts) field.ErrorList {
	path, word := field.NewPath("spec", "identityResolution"), machine.Spec.IdentityResolution
	if was.Spec.ApprovalState == ichor.ApprovalApproved {
		return immutable(word, was.Spec.IdentityResolution, path, "can't be changed once the machine is approved")
	}
	if word == nil {
		return nil
	}
	errs := oneOf(word.Decision, path.Child("decision"), ichor.IdentityDistinct, ichor.IdentitySameAs)
	switch {
	case word.Decision == ichor.IdentityDistinct && word.Machine != "":
		errs = append(errs, field.Forbidden(path.Child("machine"), "is for SameAs; a distinct machine is no other"))
	case word.Decision == ichor.IdentitySameAs && word.Machine == "":
		errs = append(errs, field.Required(path.Child("machine"), "the TalosMachine that it is the same as"))
	case word.Decision == ichor.IdentitySameAs && word.Machine == machine.Name:
		errs = append(errs, field.Invalid(path.Child("machine"), word.Machine, "is this machine itself"))
	case word.Decision == ichor.IdentitySameAs && !slices.ContainsFunc(facts.Others, func(other ichor.TalosMachine) bool { return other.Name == word.Machine }):
		errs = append(errs, field.NotFound(path.Child("machine"), word.Machine))
	}
	return errs
}

// ValidateTalosMachineFinalizeUpdate judges a change of the finalizers: Ichor's own goes only from a machine that is
// being deleted.
func ValidateTalosMachineFinalizeUpdate(machine, was *ichor.TalosMachine) field.ErrorList {
	return finalizerKept(v1alpha1.MachineFinalizer, machine.Finalizers, was.Finalizers, was.DeletionTimestamp != nil, field.NewPath("metadata", "finalizers"))
}

// finalizerKept refuses to take the finalizer from an object that isn't being deleted.
func finalizerKept(finalizer string, now, was []string, deleting bool, path *field.Path) field.ErrorList {
	if !deleting && slices.Contains(was, finalizer) && !slices.Contains(now, finalizer) {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("%s stays until the object is deleted", finalizer))}
	}
	return nil
}

// ValidateTalosMachineStatusUpdate judges a status.
func ValidateTalosMachineStatusUpdate(machine, _ *ichor.TalosMachine) field.ErrorList {
	path, status := field.NewPath("status"), &machine.Status
	errs := metav1validation.ValidateConditions(status.Conditions, path.Child("conditions"))
	if status.Stage != "" {
		errs = append(errs, oneOf(status.Stage, path.Child("stage"), ichor.StageUnknown, ichor.StageBooting, ichor.StageInstalling, ichor.StageMaintenance,
			ichor.StageRunning, ichor.StageRebooting, ichor.StageShuttingDown, ichor.StageResetting, ichor.StageUpgrading)...)
	}
	if status.Phase != "" {
		errs = append(errs, oneOf(status.Phase, path.Child("phase"), ichor.PhasePending, ichor.PhaseRejected, ichor.PhaseApproved, ichor.PhaseConfiguring,
			ichor.PhaseInstalling, ichor.PhaseRebooting, ichor.PhaseJoining, ichor.PhaseReady, ichor.PhaseRemoving, ichor.PhaseFailed)...)
	}
	for i, address := range status.Addresses {
		_, bad := ipAddress(address, path.Child("addresses").Index(i))
		errs = append(errs, bad...)
	}
	if status.MaintenanceFingerprint != "" {
		errs = append(errs, fingerprint(status.MaintenanceFingerprint, path.Child("maintenanceFingerprint"))...)
	}
	if len(status.FingerprintHistory) > maxHistory {
		errs = append(errs, field.TooMany(path.Child("fingerprintHistory"), len(status.FingerprintHistory), maxHistory))
	}
	errs = append(errs, validateRemovalStatus(status.Removal, path.Child("removal"))...)
	if config := status.Config; config != nil {
		if len(config.Drift) > maxDrift {
			errs = append(errs, field.TooMany(path.Child("config", "drift"), len(config.Drift), maxDrift))
		}
		for i, drift := range config.Drift {
			errs = append(errs, NoPrivateKey([]byte(drift.Want+" "+drift.Have), path.Child("config", "drift").Index(i))...)
		}
	}
	return errs
}
