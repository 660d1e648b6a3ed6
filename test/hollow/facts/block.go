// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/dustin/go-humanize"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"maesh.dev/ichor/test/hollow/fleet"
)

const sectorSize = 512

func blockGroups(v View) []Group {
	var disks, volumes, symlinks []resource.Resource
	disks = append(disks, squashfsLoop())
	for _, d := range v.Machine.Disks {
		disks = append(disks, Disk(d))
		volumes = append(volumes, discoveredVolumes(v, d)...)
		symlinks = append(symlinks, symlink(d))
	}
	return []Group{
		group("block.DisksController", block.NamespaceName, block.DiskType, disks...),
		group("block.DiscoveryController", block.NamespaceName, block.DiscoveredVolumeType, volumes...),
		group("block.SymlinksController", block.NamespaceName, block.SymlinkType, symlinks...),
		group("block.SystemDiskController", block.NamespaceName, block.SystemDiskType, systemDisk(v)...),
	}
}

// Disk is the resource of one disk.
func Disk(d fleet.Disk) *block.Disk {
	name := path.Base(d.Device)
	r := block.NewDisk(block.NamespaceName, name)
	s := r.TypedSpec()
	s.DevPath, s.Size, s.PrettySize = d.Device, uint64(d.Size), humanize.Bytes(uint64(d.Size))
	s.IOSize, s.SectorSize = sectorSize, sectorSize
	s.Readonly, s.CDROM, s.Rotational = d.ReadOnly, d.CDROM, d.Rotational
	s.Model, s.Serial, s.WWID, s.UUID = d.Model, d.Serial, d.WWID, d.UUID
	s.Transport, s.BusPath, s.SubSystem = d.Transport, d.BusPath, "/sys/class/block"
	s.Symlinks = symlinkPaths(d)
	return r
}

// squashfsLoop is the read-only loop device that every Talos boots from; it has no serial, model or transport.
func squashfsLoop() resource.Resource {
	const size = 76 << 20
	r := block.NewDisk(block.NamespaceName, "loop0")
	s := r.TypedSpec()
	s.DevPath, s.Size, s.PrettySize, s.Readonly = "/dev/loop0", size, humanize.Bytes(size), true
	s.IOSize, s.SectorSize, s.SubSystem = sectorSize, sectorSize, "/sys/class/block"
	return r
}

func symlinkPaths(d fleet.Disk) []string {
	var paths []string
	if d.Serial != "" {
		model := strings.ReplaceAll(d.Model, " ", "_")
		paths = append(paths, fmt.Sprintf("/dev/disk/by-id/%s-%s_%s", d.Transport, model, d.Serial))
	}
	if d.WWID != "" {
		paths = append(paths, "/dev/disk/by-id/wwn-"+d.WWID)
	}
	return paths
}

func symlink(d fleet.Disk) resource.Resource {
	r := block.NewSymlink(block.NamespaceName, path.Base(d.Device))
	r.TypedSpec().Paths = symlinkPaths(d)
	return r
}

// isSystemDisk tells whether the installation is on this very disk, not on another one in its place.
func isSystemDisk(v View, d fleet.Disk) bool {
	return v.Installed != nil && v.Installed.Device == d.Device && v.Installed.Serial == d.Serial && v.Installed.WWID == d.WWID
}

func systemDisk(v View) []resource.Resource {
	for _, d := range v.Machine.Disks {
		if isSystemDisk(v, d) {
			r := block.NewSystemDisk(block.NamespaceName, block.SystemDiskID)
			r.TypedSpec().DiskID, r.TypedSpec().DevPath = path.Base(d.Device), d.Device
			return []resource.Resource{r}
		}
	}
	return nil
}

// partition is one partition of the system disk as the installer of 1.13 lays it out with sd-boot.
type partition struct {
	label      string
	size       uint64
	filesystem string
}

const (
	efiSize   = 2200 << 20
	metaSize  = 1 << 20
	stateSize = 100 << 20
)

func partitions(diskSize uint64) []partition {
	list := []partition{{"EFI", efiSize, "vfat"}, {"META", metaSize, "talosmeta"}, {"STATE", stateSize, "xfs"}, {"EPHEMERAL", 0, "xfs"}}
	used := uint64(2 << 20)
	for _, p := range list {
		used += p.size
	}
	if diskSize > used {
		list[len(list)-1].size = diskSize - used
	}
	return list
}

// partitionDevice is sda1 for sda and nvme0n1p1 for nvme0n1.
func partitionDevice(name string, index int) string {
	if unicode.IsDigit(rune(name[len(name)-1])) {
		return fmt.Sprintf("%sp%d", name, index)
	}
	return fmt.Sprintf("%s%d", name, index)
}

func discoveredVolumes(v View, d fleet.Disk) []resource.Resource {
	name := path.Base(d.Device)
	whole := block.NewDiscoveredVolume(block.NamespaceName, name)
	s := whole.TypedSpec()
	s.Type, s.DevPath, s.DevicePath = "disk", d.Device, path.Join(d.BusPath, name)
	s.Size, s.PrettySize, s.SectorSize, s.IOSize = uint64(d.Size), humanize.Bytes(uint64(d.Size)), sectorSize, sectorSize
	s.Name = d.Signature
	list := []resource.Resource{whole}
	if !isSystemDisk(v, d) {
		return list
	}
	s.Name, s.UUID = "gpt", partitionUUID(d, 0)
	offset := uint64(1 << 20)
	for i, p := range partitions(uint64(d.Size)) {
		device := partitionDevice(name, i+1)
		r := block.NewDiscoveredVolume(block.NamespaceName, device)
		ps := r.TypedSpec()
		ps.Type, ps.DevPath, ps.DevicePath = "partition", "/dev/"+device, path.Join(d.BusPath, name, device)
		ps.Parent, ps.ParentDevPath, ps.Offset = name, d.Device, offset
		ps.Size, ps.PrettySize, ps.SectorSize, ps.IOSize = p.size, humanize.Bytes(p.size), sectorSize, sectorSize
		ps.Name, ps.PartitionLabel, ps.PartitionIndex, ps.PartitionUUID = p.filesystem, p.label, uint(i+1), partitionUUID(d, i+1)
		offset += p.size
		list = append(list, r)
	}
	return list
}
