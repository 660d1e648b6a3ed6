// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"fmt"
	"strings"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// fate says which disks of a machine are wiped and which are kept. The first disk that is wiped is the one that Talos runs
// from. A reason comes back where the choice isn't clear, and nothing may be wiped then.
func fate(inventory *v1alpha1.MachineInventory, system *v1alpha1.SystemDisk, wanted []v1alpha1.DiskMatch) (wipe, keep []v1alpha1.ReclaimDisk, why string) {
	if inventory == nil || system == nil || system.Device == "" {
		return nil, nil, "the machine doesn't say which disk it runs from"
	}
	wiped := map[string]bool{system.Device: true}
	for _, match := range wanted {
		var found []v1alpha1.DiskInventory
		for _, disk := range inventory.Disks {
			if matches(match, disk) {
				found = append(found, disk)
			}
		}
		switch {
		case len(found) == 0:
			return nil, nil, fmt.Sprintf("there is no disk with %s; the machine has %s", matchWords(match), diskWords(inventory.Disks))
		case len(found) > 1:
			return nil, nil, fmt.Sprintf("more than one disk has %s: %s", matchWords(match), diskWords(found))
		case found[0].ReadOnly:
			return nil, nil, fmt.Sprintf("the disk with %s can't be written: %s", matchWords(match), diskWords(found))
		}
		wiped[found[0].Device] = true
	}
	known := false
	for _, disk := range inventory.Disks {
		each := v1alpha1.ReclaimDisk{Device: disk.Device, Serial: disk.Serial, WWID: disk.WWID, Model: disk.Model, Size: disk.Size}
		switch {
		case disk.Device == system.Device:
			known = true
			wipe = append([]v1alpha1.ReclaimDisk{each}, wipe...)
		case wiped[disk.Device]:
			wipe = append(wipe, each)
		default:
			keep = append(keep, each)
		}
	}
	if !known {
		return nil, nil, fmt.Sprintf("the machine runs from %s, which is not among its disks: %s", system.Device, diskWords(inventory.Disks))
	}
	return wipe, keep, ""
}

// matches tells whether a disk has everything that is asked for; nothing asked for matches nothing.
func matches(match v1alpha1.DiskMatch, disk v1alpha1.DiskInventory) bool {
	return match != (v1alpha1.DiskMatch{}) && (match.Serial == "" || match.Serial == disk.Serial) && (match.WWID == "" || match.WWID == disk.WWID)
}

func matchWords(match v1alpha1.DiskMatch) string {
	var parts []string
	if match.Serial != "" {
		parts = append(parts, "serial number "+match.Serial)
	}
	if match.WWID != "" {
		parts = append(parts, "WWID "+match.WWID)
	}
	return strings.Join(parts, " and ")
}

func diskWords(disks []v1alpha1.DiskInventory) string {
	const most = 8
	var parts []string
	for i, disk := range disks {
		if i == most {
			parts = append(parts, fmt.Sprintf("%d more", len(disks)-most))
			break
		}
		parts = append(parts, fmt.Sprintf("%s (serial %q)", disk.Device, disk.Serial))
	}
	if len(parts) == 0 {
		return "no disks"
	}
	return strings.Join(parts, ", ")
}

// others are the devices that are wiped besides the one that Talos runs from.
func others(wipe []v1alpha1.ReclaimDisk) []string {
	var devices []string
	for _, disk := range wipe[min(1, len(wipe)):] {
		devices = append(devices, disk.Device)
	}
	return devices
}

// listed names disks by serial number for people.
func listed(disks []v1alpha1.ReclaimDisk) string {
	var parts []string
	for _, disk := range disks {
		name := disk.Serial
		if name == "" {
			name = disk.WWID
		}
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s", disk.Device, name)))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
