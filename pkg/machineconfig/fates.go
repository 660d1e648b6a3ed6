// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	// maxFates bounds the record of what becomes of disks.
	maxFates = 256
	// namedFates is how many disks a message names.
	namedFates = 16
)

// Fates says what becomes of each disk of a machine that is removed: the system disk and the ephemeral one are wiped, and
// those whose paths are named.
func Fates(decided []v1alpha1.MachineDisk, inventory *v1alpha1.MachineInventory, system *v1alpha1.SystemDisk, named []string) []v1alpha1.RemovedDisk {
	if inventory == nil {
		return nil
	}
	roles := map[string]v1alpha1.MachineDisk{}
	for _, disk := range decided {
		for _, found := range MatchDisks(disk.Match, inventory) {
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
		if IsSystemDisk(disk, system) {
			fate.Role, fate.Name = v1alpha1.DiskSystem, ""
		}
		if fate.Role == v1alpha1.DiskSystem || fate.Role == v1alpha1.DiskEphemeral || slices.Contains(named, disk.Device) {
			fate.Fate = v1alpha1.DiskWiped
		}
		fates = append(fates, fate)
	}
	return fates
}

// IsSystemDisk tells whether a disk is the one that Talos says it runs from.
func IsSystemDisk(disk v1alpha1.DiskInventory, system *v1alpha1.SystemDisk) bool {
	return system != nil && (disk.Device == system.Device || disk.Serial != "" && disk.Serial == system.Serial || disk.WWID != "" && disk.WWID == system.WWID)
}

// DescribeFates lists for people what is wiped and what is kept, by serial number.
func DescribeFates(fates []v1alpha1.RemovedDisk) string {
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
