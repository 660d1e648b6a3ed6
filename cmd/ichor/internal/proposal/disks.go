// SPDX-License-Identifier: Apache-2.0

package proposal

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// minimumSystemDisk is the smallest disk that Talos installs on.
var minimumSystemDisk = resource.MustParse("10Gi")

// Disk is a disk of the inventory with what was thought about it.
type Disk struct {
	v1alpha1.DiskInventory
	// Match names the disk by what is burnt into it; empty if there is nothing that only this disk has.
	Match v1alpha1.DiskMatch
	// Objection says why Talos shouldn't be installed on it; empty for a candidate.
	Objection string
	// Impossible is true when Talos can't be installed on it at all.
	Impossible bool
}

// Usable is true for a disk that can be given a role: it can be written and named for good.
func (d *Disk) Usable() bool { return !d.ReadOnly && !d.CDROM && d.Match != (v1alpha1.DiskMatch{}) }

// Disks judges the disks of a machine: candidates for the installation first, each group as the inventory has them.
func Disks(inventory *v1alpha1.MachineInventory) []Disk {
	if inventory == nil {
		return nil
	}
	disks := make([]Disk, 0, len(inventory.Disks))
	for _, found := range inventory.Disks {
		disk := Disk{DiskInventory: found, Match: stableMatch(inventory.Disks, found)}
		disk.Objection, disk.Impossible = objection(&disk)
		disks = append(disks, disk)
	}
	rank := func(disk *Disk) int {
		switch {
		case disk.Objection == "":
			return 0
		case !disk.Impossible:
			return 1
		default:
			return 2
		}
	}
	slices.SortStableFunc(disks, func(a, b Disk) int { return rank(&a) - rank(&b) })
	return disks
}

// stableMatch finds the shortest name that only this disk has. Device paths are none: they move at each boot.
func stableMatch(all []v1alpha1.DiskInventory, disk v1alpha1.DiskInventory) v1alpha1.DiskMatch {
	for _, match := range []v1alpha1.DiskMatch{{Serial: disk.Serial}, {WWID: disk.WWID}, {Serial: disk.Serial, WWID: disk.WWID}} {
		if match != (v1alpha1.DiskMatch{}) && len(matching(all, match)) == 1 {
			return match
		}
	}
	return v1alpha1.DiskMatch{}
}

func matching(all []v1alpha1.DiskInventory, match v1alpha1.DiskMatch) []v1alpha1.DiskInventory {
	var found []v1alpha1.DiskInventory
	for _, disk := range all {
		if (match.Serial == "" || match.Serial == disk.Serial) && (match.WWID == "" || match.WWID == disk.WWID) {
			found = append(found, disk)
		}
	}
	return found
}

func objection(disk *Disk) (why string, impossible bool) {
	switch {
	case disk.CDROM:
		return "a CD drive", true
	case disk.ReadOnly:
		return "read-only", true
	case disk.Size.Cmp(minimumSystemDisk) < 0:
		return "smaller than 10 GiB", true
	case disk.Match == (v1alpha1.DiskMatch{}):
		return "has no serial number or WWID of its own", true
	case disk.Transport == "usb":
		return "on USB", false
	case disk.Transport == "mmc" || strings.HasPrefix(disk.Device, "/dev/mmcblk"):
		return "a memory card", false
	}
	return "", false
}

// FindDisk resolves what a person typed to one disk: a path, serial=…, wwid=…, or a bare serial number or WWID.
func FindDisk(inventory *v1alpha1.MachineInventory, typed string) (Disk, error) {
	disks := Disks(inventory)
	if len(disks) == 0 {
		return Disk{}, fmt.Errorf("the machine's disks aren't known yet")
	}
	var found []Disk
	for _, fits := range diskReadings(typed) {
		for _, disk := range disks {
			if fits(&disk) {
				found = append(found, disk)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	switch len(found) {
	case 1:
		if found[0].Match == (v1alpha1.DiskMatch{}) {
			return Disk{}, fmt.Errorf("%s can't be named for good: no serial number or WWID that only it has", found[0].Device)
		}
		return found[0], nil
	case 0:
		return Disk{}, fmt.Errorf("the machine has no disk %q; it has %s", typed, listDisks(disks))
	default:
		return Disk{}, fmt.Errorf("%q fits %d disks: %s", typed, len(found), listDisks(found))
	}
}

// ResolveDisk finds the one disk that a choice means.
func ResolveDisk(inventory *v1alpha1.MachineInventory, match v1alpha1.DiskMatch) (Disk, error) {
	if match == (v1alpha1.DiskMatch{}) {
		return Disk{}, fmt.Errorf("names no disk: give its serial or wwid; the machine has %s", listDisks(Disks(inventory)))
	}
	var found []Disk
	for _, disk := range Disks(inventory) {
		if Matches(match, disk.DiskInventory) {
			found = append(found, disk)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Disk{}, fmt.Errorf("the machine has no disk with that; it has %s", listDisks(Disks(inventory)))
	default:
		return Disk{}, fmt.Errorf("fits %d disks: %s; give both serial and wwid", len(found), listDisks(found))
	}
}

// diskReadings are the ways to read what was typed, the first that fits a disk holds.
func diskReadings(typed string) []func(*Disk) bool {
	serial := func(value string) func(*Disk) bool {
		return func(disk *Disk) bool { return value != "" && disk.Serial == value }
	}
	wwid := func(value string) func(*Disk) bool {
		return func(disk *Disk) bool { return value != "" && disk.WWID == value }
	}
	if value, found := strings.CutPrefix(typed, "serial="); found {
		return []func(*Disk) bool{serial(value)}
	}
	if value, found := strings.CutPrefix(typed, "wwid="); found {
		return []func(*Disk) bool{wwid(value)}
	}
	if strings.HasPrefix(typed, "/dev/") {
		return []func(*Disk) bool{func(disk *Disk) bool { return disk.Device == typed }}
	}
	return []func(*Disk) bool{serial(typed), wwid(typed)}
}

func listDisks(disks []Disk) string {
	if len(disks) == 0 {
		return "none"
	}
	names := make([]string, 0, len(disks))
	for _, disk := range disks {
		name := disk.Device
		switch {
		case disk.Serial != "":
			name += " (serial " + disk.Serial + ")"
		case disk.WWID != "":
			name += " (wwid " + disk.WWID + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}
