// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"path"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/dustin/go-humanize"
	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"maesh.dev/ichor/test/hollow/fleet"
)

const volumeOwner = "block.VolumeManagerController"

// partitionUUID is stable for a disk, as a partition table's is.
func partitionUUID(d fleet.Disk, index int) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte{byte(index), ':'}).String()[:24] +
		uuid.NewSHA1(uuid.NameSpaceOID, []byte(d.Serial+d.WWID+d.Device)).String()[24:]
}

func volumeGroups(v View) []Group {
	var statuses []resource.Resource
	var system *fleet.Disk
	for i := range v.Machine.Disks {
		if isSystemDisk(v, v.Machine.Disks[i]) {
			system = &v.Machine.Disks[i]
		}
	}
	for _, label := range []string{constants.MetaPartitionLabel, constants.StatePartitionLabel, constants.EphemeralPartitionLabel} {
		if label == constants.EphemeralPartitionLabel && v.Maintenance {
			// EPHEMERAL's volume is defined by the configuration.
			continue
		}
		statuses = append(statuses, systemVolume(v, label, system))
	}
	statuses = append(statuses, userVolumes(v)...)
	lifecycle := block.NewVolumeLifecycle(block.NamespaceName, block.VolumeLifecycleID)
	refresh := block.NewDiscoveryRefreshRequest(block.NamespaceName, block.RefreshID)
	return []Group{
		group(volumeOwner, block.NamespaceName, block.VolumeStatusType, statuses...),
		group("block.VolumeManagerController", block.NamespaceName, block.VolumeLifecycleType, lifecycle),
		group("block.DiscoveryController", block.NamespaceName, block.DiscoveryRefreshRequestType, refresh),
	}
}

// systemVolume is ready on an installed machine, else missing (META and STATE are only looked for) or waiting.
func systemVolume(v View, label string, system *fleet.Disk) resource.Resource {
	r := block.NewVolumeStatus(block.NamespaceName, label)
	r.Metadata().Labels().Set(block.SystemVolumeLabel, "")
	s := r.TypedSpec()
	s.Type, s.Phase = block.VolumeTypePartition, block.VolumePhaseMissing
	if label == constants.EphemeralPartitionLabel {
		s.Phase = block.VolumePhaseWaiting
	}
	if system == nil || (label == constants.EphemeralPartitionLabel && !v.Booted) {
		return r
	}
	name := path.Base(system.Device)
	for i, p := range partitions(uint64(system.Size)) {
		if p.label == label {
			s.Phase, s.Location, s.MountLocation = block.VolumePhaseReady, "/dev/"+partitionDevice(name, i+1), "/dev/"+partitionDevice(name, i+1)
			s.ParentLocation, s.PartitionIndex, s.PartitionUUID = system.Device, i+1, partitionUUID(*system, i+1)
			s.Size, s.PrettySize = p.size, humanize.Bytes(p.size)
			if p.filesystem == "xfs" {
				s.Filesystem = block.FilesystemTypeXFS
			}
		}
	}
	if label == constants.MetaPartitionLabel {
		s.Filesystem = block.FilesystemTypeNone
	}
	return r
}

// userVolumes shows the volumes that the configuration's documents define.
func userVolumes(v View) []resource.Resource {
	if v.Active == nil || v.Maintenance || !v.Booted {
		return nil
	}
	var list []resource.Resource
	for _, volume := range v.Active.UserVolumeConfigs() {
		r := block.NewVolumeStatus(block.NamespaceName, constants.UserVolumePrefix+volume.Name())
		s := r.TypedSpec()
		s.Type, s.Phase = block.VolumeTypePartition, block.VolumePhaseReady
		if t, ok := volume.Type().Get(); ok {
			s.Type = t
		}
		list = append(list, r)
	}
	return list
}
