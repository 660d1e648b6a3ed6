// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// MinSystemDisk is the least size of a disk that Talos is installed on. Source: the system requirements of Talos' own
// documentation: 10 GiB.
var MinSystemDisk = resource.MustParse("10Gi")

// volumeName is what Talos takes as the name of a user volume.
// Source: Talos, pkg/machinery/config/types/block/user_volume_config.go (1-34 ASCII letters, digits and hyphens).
var volumeName = regexp.MustCompile(`^[a-zA-Z0-9-]{1,34}$`)

// validateDisks judges the roles of a machine's disks against the disks that were seen on it.
func validateDisks(machine *ichor.TalosMachine, path *field.Path) field.ErrorList {
	if len(machine.Spec.Disks) > maxDisks {
		return field.ErrorList{field.TooMany(path, len(machine.Spec.Disks), maxDisks)}
	}
	var errs field.ErrorList
	systems, ephemerals := 0, 0
	users := map[string]int{} // device → first entry
	volumes := map[string]bool{}
	for i, disk := range machine.Spec.Disks {
		path := path.Index(i)
		switch disk.Role {
		case ichor.DiskSystem:
			if systems++; systems > 1 {
				errs = append(errs, field.Invalid(path.Child("role"), disk.Role, "another disk is the system disk already; there is exactly one"))
			}
		case ichor.DiskEphemeral:
			if ephemerals++; ephemerals > 1 {
				errs = append(errs, field.Invalid(path.Child("role"), disk.Role, "another disk is the ephemeral disk already; there is at most one"))
			}
		default:
			errs = append(errs, oneOf(disk.Role, path.Child("role"), ichor.DiskSystem, ichor.DiskEphemeral, ichor.DiskStorage, ichor.DiskUserVolume, ichor.DiskUnused)...)
		}
		errs = append(errs, validateVolumeName(disk, volumes, path.Child("name"))...)
		found, bad := seenDisk(disk.Match, machine.Status.Inventory, path.Child("match"))
		errs = append(errs, bad...)
		if found == nil {
			continue
		}
		if first, taken := users[found.Device]; taken {
			errs = append(errs, field.Invalid(path.Child("match"), describeMatch(disk.Match), fmt.Sprintf("is %s, which spec.disks[%d] gives a role already", describeDisk(found), first)))
		} else {
			users[found.Device] = i
		}
		errs = append(errs, validateUse(disk, found, path)...)
	}
	if systems == 0 && machine.Spec.Origin != ichor.MachineAdopted {
		errs = append(errs, field.Required(path, "one disk must have the role system, which Talos is installed on"))
	}
	return errs
}

func validateVolumeName(disk ichor.MachineDisk, taken map[string]bool, path *field.Path) field.ErrorList {
	switch {
	case disk.Role != ichor.DiskUserVolume && disk.Name != "":
		return field.ErrorList{field.Forbidden(path, "is for the role userVolume")}
	case disk.Role != ichor.DiskUserVolume:
		return nil
	case disk.Name == "":
		return field.ErrorList{field.Required(path, "a user volume has a name; it is mounted at /var/mnt/<name>")}
	case !volumeName.MatchString(disk.Name):
		return field.ErrorList{field.Invalid(path, disk.Name, "must be 1 to 34 letters, digits and hyphens")}
	case taken[disk.Name]:
		return field.ErrorList{field.Duplicate(path, disk.Name)}
	}
	taken[disk.Name] = true
	return nil
}

// seenDisk returns the one disk that was seen on the machine and matches. Without an inventory nothing can be judged.
func seenDisk(match ichor.DiskMatch, inventory *ichor.MachineInventory, path *field.Path) (*ichor.DiskInventory, field.ErrorList) {
	if match == (ichor.DiskMatch{}) {
		return nil, field.ErrorList{field.Required(path, "serial, wwid or both")}
	}
	if inventory == nil {
		return nil, nil
	}
	var found []*ichor.DiskInventory
	for i := range inventory.Disks {
		disk := &inventory.Disks[i]
		if (match.Serial == "" || match.Serial == disk.Serial) && (match.WWID == "" || match.WWID == disk.WWID) {
			found = append(found, disk)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, field.ErrorList{field.Invalid(path, describeMatch(match), "no disk of the machine is that; it has "+describeDisks(inventory.Disks))}
	}
	var names []string
	for _, disk := range found {
		names = append(names, describeDisk(disk))
	}
	return nil, field.ErrorList{field.Invalid(path, describeMatch(match), "matches more than one disk: "+strings.Join(names, ", ")+"; give both serial and wwid")}
}

// validateUse refuses a role that the disk can't have.
func validateUse(disk ichor.MachineDisk, found *ichor.DiskInventory, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if disk.Role == ichor.DiskUnused {
		return nil
	}
	switch {
	case found.CDROM:
		errs = append(errs, field.Invalid(path.Child("match"), describeMatch(disk.Match), describeDisk(found)+" is an optical drive"))
	case found.ReadOnly:
		errs = append(errs, field.Invalid(path.Child("match"), describeMatch(disk.Match), describeDisk(found)+" is read-only"))
	}
	if disk.Role == ichor.DiskSystem && found.Size.Cmp(MinSystemDisk) < 0 {
		errs = append(errs, field.Invalid(path.Child("match"), describeMatch(disk.Match), fmt.Sprintf("%s has %s; Talos needs at least %s",
			describeDisk(found), found.Size.String(), MinSystemDisk.String())))
	}
	return errs
}

func describeMatch(match ichor.DiskMatch) string {
	var parts []string
	if match.Serial != "" {
		parts = append(parts, "serial "+match.Serial)
	}
	if match.WWID != "" {
		parts = append(parts, "wwid "+match.WWID)
	}
	return strings.Join(parts, ", ")
}

func describeDisk(disk *ichor.DiskInventory) string {
	text := disk.Device
	if id := describeMatch(ichor.DiskMatch{Serial: disk.Serial, WWID: disk.WWID}); id != "" {
		text += " (" + id + ")"
	}
	return text
}

func describeDisks(disks []ichor.DiskInventory) string {
	var names []string
	for i := range disks {
		names = append(names, describeDisk(&disks[i]))
	}
	if len(names) == 0 {
		return "no disks"
	}
	return strings.Join(names, ", ")
}
