// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
)

const (
	// maxFates bounds the record of what becomes of disks.
	maxFates = 256
	// namedFates is how many disks a message names.
	namedFates = 16
)

// removal is the record of the removal, which is made if there is none.
func (v *visit) removal() *v1alpha1.RemovalStatus {
	if v.m.Status.Removal == nil {
		v.m.Status.Removal = &v1alpha1.RemovalStatus{}
	}
	return v.m.Status.Removal
}

// settleDisks records what becomes of each disk, by what was read on the connection over which the machine will be told,
// and returns the paths of the user disks that are wiped. Nothing is wiped but what was approved as the system disk, or
// named: why says what is in the way.
func (v *visit) settleDisks(facts *talos.Facts) (devices []string, why string) {
	if want := approvedSystemDisk(v.m); want != nil && facts.SystemDisk != nil && !isDisk(*want, facts.SystemDisk) {
		return nil, fmt.Sprintf("Talos runs from %s (serial %s, wwid %s), but the disk with %s was approved, so nothing is wiped; to leave the machine as it is, set spec.deletionPolicy to Orphan",
			facts.SystemDisk.Device, facts.SystemDisk.Serial, facts.SystemDisk.WWID, machineconfig.DescribeMatch(*want))
	}
	inventory := facts.Inventory
	if inventory == nil {
		inventory = v.m.Status.Inventory
	}
	if removal := v.m.Spec.Removal; removal != nil {
		for _, match := range removal.WipeDisks {
			found := machineconfig.MatchDisks(match, facts.Inventory)
			switch {
			case len(found) != 1:
				return nil, fmt.Sprintf("the disk with %s is to be wiped, and %d disks of the machine are that, so nothing is; take it out of spec.removal.wipeDisks to go on", machineconfig.DescribeMatch(match), len(found))
			case isSystem(found[0], facts.SystemDisk):
				return nil, fmt.Sprintf("the disk with %s is the system disk, which is wiped anyway; take it out of spec.removal.wipeDisks to go on", machineconfig.DescribeMatch(match))
			}
			devices = append(devices, found[0].Device)
		}
	}
	fates := fatesOf(v.m.Spec.Disks, inventory, facts.SystemDisk, devices)
	if !slices.Equal(fates, v.removal().Disks) {
		v.removal().Disks = fates
	}
	return devices, ""
}

// fatesOf says what becomes of each disk: the system disk and the ephemeral one are wiped, and those that are named.
func fatesOf(decided []v1alpha1.MachineDisk, inventory *v1alpha1.MachineInventory, system *v1alpha1.SystemDisk, named []string) []v1alpha1.RemovedDisk {
	if inventory == nil {
		return nil
	}
	roles := map[string]v1alpha1.MachineDisk{}
	for _, disk := range decided {
		for _, found := range machineconfig.MatchDisks(disk.Match, inventory) {
			roles[found.Device] = disk
		}
	}
	var fates []v1alpha1.RemovedDisk
	for _, disk := range inventory.Disks {
		if disk.CDROM || len(fates) == maxFates {
			continue
		}
		fate := v1alpha1.RemovedDisk{
			Fate: v1alpha1.DiskKept, Role: cmp.Or(roles[disk.Device].Role, v1alpha1.DiskUnused), Name: roles[disk.Device].Name,
			Serial: disk.Serial, WWID: disk.WWID, Device: disk.Device,
		}
		if isSystem(disk, system) {
			fate.Role, fate.Name = v1alpha1.DiskSystem, ""
		}
		if fate.Role == v1alpha1.DiskSystem || fate.Role == v1alpha1.DiskEphemeral || slices.Contains(named, disk.Device) {
			fate.Fate = v1alpha1.DiskWiped
		}
		fates = append(fates, fate)
	}
	return fates
}

// isSystem tells whether a disk is the one that Talos says it runs from.
func isSystem(disk v1alpha1.DiskInventory, system *v1alpha1.SystemDisk) bool {
	return system != nil && (disk.Device == system.Device || disk.Serial != "" && disk.Serial == system.Serial || disk.WWID != "" && disk.WWID == system.WWID)
}

// describeFates lists for people what is wiped and what is kept, by serial number.
func describeFates(fates []v1alpha1.RemovedDisk) string {
	var wiped, kept []string
	for _, disk := range fates {
		text := fmt.Sprintf("%s (%s)", cmp.Or(disk.Serial, disk.WWID, disk.Device), disk.Role)
		if disk.Fate == v1alpha1.DiskWiped {
			wiped = append(wiped, text)
		} else {
			kept = append(kept, text)
		}
	}
	list := func(disks []string) string {
		switch rest := len(disks) - namedFates; {
		case len(disks) == 0:
			return "nothing"
		case rest > 0:
			return strings.Join(disks[:namedFates], ", ") + fmt.Sprintf(" and %d more", rest)
		}
		return strings.Join(disks, ", ")
	}
	return "wiped: " + list(wiped) + "; kept: " + list(kept)
}
