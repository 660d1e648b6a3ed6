// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
)

const (
	// maxRemovedDisks bounds the record of what becomes of a machine's disks.
	maxRemovedDisks = 256
	// MaxQuarantined bounds the machines that were removed without being wiped.
	MaxQuarantined = 64
)

// validateRemovalUpdate judges how a machine is to be removed. Once it is being removed, what was asked for may have been
// done, so nothing is taken back, and what is wiped is settled.
func validateRemovalUpdate(machine, was *ichor.TalosMachine, path *field.Path) field.ErrorList {
	removal, before := machine.Spec.Removal, was.Spec.Removal
	if removal == nil {
		removal = &ichor.MachineRemoval{}
	}
	if before == nil {
		before = &ichor.MachineRemoval{}
	}
	var errs field.ErrorList
	switch {
	case removal.Force && removal.Consent != machine.Name:
		errs = append(errs, field.Invalid(path.Child("consent"), removal.Consent, fmt.Sprintf(
			"must be the name of the machine, %q, typed once more: if it doesn't answer, it is given up with all that is on its disks, the cluster's keys among it", machine.Name)))
	case !removal.Force && removal.Consent != "":
		errs = append(errs, field.Forbidden(path.Child("consent"), "is for force"))
	}
	if len(removal.WipeDisks) > maxWipeDisks {
		errs = append(errs, field.TooMany(path.Child("wipeDisks"), len(removal.WipeDisks), maxWipeDisks))
	}
	if machine == was || !apiequality.Semantic.DeepEqual(removal.WipeDisks, before.WipeDisks) {
		errs = append(errs, validateWipeDisks(removal.WipeDisks, machine, path.Child("wipeDisks"))...)
	}
	if was.DeletionTimestamp == nil {
		return errs
	}
	if before.Force && !removal.Force {
		errs = append(errs, field.Forbidden(path.Child("force"), "can't be taken back while the machine is being removed: it may have been given up"))
	}
	if before.SkipDrain && !removal.SkipDrain {
		errs = append(errs, field.Forbidden(path.Child("skipDrain"), "can't be taken back while the machine is being removed"))
	}
	for i, match := range removal.WipeDisks {
		if !slices.Contains(before.WipeDisks, match) {
			errs = append(errs, field.Forbidden(path.Child("wipeDisks").Index(i), "can't be added while the machine is being removed: what becomes of its disks was told already"))
		}
	}
	return errs
}

// validateWipeDisks judges disks that are to be wiped by what was seen on the machine: each is one disk, not the system
// disk, which is wiped anyway, and named once.
func validateWipeDisks(disks []ichor.DiskMatch, machine *ichor.TalosMachine, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := map[string]bool{}
	for i, match := range disks {
		path := path.Index(i)
		found, bad := seenDisk(match, machine.Status.Inventory, path)
		errs = append(errs, bad...)
		if found == nil {
			continue
		}
		if taken[found.Device] {
			errs = append(errs, field.Duplicate(path, describeDisk(found)))
		}
		taken[found.Device] = true
		if system := machine.Status.SystemDisk; system != nil && (system.Serial != "" && system.Serial == found.Serial || system.WWID != "" && system.WWID == found.WWID) {
			errs = append(errs, field.Invalid(path, describeMatch(match), "is the system disk, which is wiped anyway"))
		}
	}
	return errs
}

func validateRemovalStatus(status *ichor.RemovalStatus, path *field.Path) field.ErrorList {
	if status == nil {
		return nil
	}
	var errs field.ErrorList
	if len(status.Disks) > maxRemovedDisks {
		errs = append(errs, field.TooMany(path.Child("disks"), len(status.Disks), maxRemovedDisks))
	}
	for i, disk := range status.Disks {
		errs = append(errs, oneOf(disk.Fate, path.Child("disks").Index(i).Child("fate"), ichor.DiskWiped, ichor.DiskKept)...)
		errs = append(errs, oneOf(disk.Role, path.Child("disks").Index(i).Child("role"), ichor.DiskSystem, ichor.DiskEphemeral, ichor.DiskStorage, ichor.DiskUserVolume, ichor.DiskUnused)...)
	}
	return errs
}

// validateClusterDeletion judges what is to become of a cluster's machines.
func validateClusterDeletion(cluster, was *ichor.TalosCluster, path *field.Path) field.ErrorList {
	policy, before := cluster.Spec.DeletionPolicy, was.Spec.DeletionPolicy
	errs := oneOf(policy, path.Child("deletionPolicy"), ichor.ClusterDeletionRefuse, ichor.ClusterDeletionOrphan, ichor.ClusterDeletionDestroy)
	switch {
	case policy == ichor.ClusterDeletionDestroy:
		errs = append(errs, consent(cluster.Spec.DeletionConsent, cluster.Name, path.Child("deletionConsent"), "deleting the cluster then wipes all its machines")...)
	case cluster.Spec.DeletionConsent != "":
		errs = append(errs, field.Forbidden(path.Child("deletionConsent"), "is for the deletion policy Destroy"))
	}
	stops := before == ichor.ClusterDeletionDestroy && policy == ichor.ClusterDeletionOrphan
	if was.DeletionTimestamp != nil && !stops {
		errs = append(errs, immutable(policy, before, path.Child("deletionPolicy"), "can't be changed while the cluster is being deleted, but from Destroy to Orphan")...)
	}
	return errs
}
