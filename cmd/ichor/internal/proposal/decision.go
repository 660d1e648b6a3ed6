// SPDX-License-Identifier: Apache-2.0

package proposal

import (
	"maps"
	"slices"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Decision is what an approval decides.
type Decision struct {
	Cluster  string
	Role     v1alpha1.MachineRole
	Hostname string
	Labels   map[string]string
	Disks    []v1alpha1.MachineDisk
	Network  *v1alpha1.MachineNetwork
	Reason   string
}

// Current is what was decided about a machine already, as the start for changing it.
func Current(machine *v1alpha1.TalosMachine) Decision {
	copied := machine.DeepCopy()
	return Decision{
		Cluster: copied.Spec.ClusterRef.Name, Role: copied.Spec.Role, Hostname: copied.Spec.Hostname,
		Labels: copied.Spec.NodeLabels, Disks: copied.Spec.Disks, Network: copied.Spec.Network,
	}
}

// Approve is the object to send: the machine as it was shown, with the decision and the fingerprint that was shown.
func (d Decision) Approve(shown *v1alpha1.TalosMachine) *v1alpha1.TalosMachine {
	machine := shown.DeepCopy()
	spec := &machine.Spec
	spec.ApprovalState = v1alpha1.ApprovalApproved
	spec.ClusterRef.Name = d.Cluster
	spec.Role, spec.Hostname, spec.Network = d.Role, d.Hostname, d.Network
	spec.NodeLabels = maps.Clone(d.Labels)
	spec.Disks = slices.Clone(d.Disks)
	if spec.Approval == nil {
		spec.Approval = &v1alpha1.MachineApproval{}
	}
	if spec.Origin != v1alpha1.MachineAdopted && shown.Spec.ApprovalState != v1alpha1.ApprovalApproved {
		spec.Approval.MaintenanceFingerprint = shown.Status.MaintenanceFingerprint
	}
	if d.Reason != "" {
		spec.Approval.Reason = d.Reason
	}
	return machine
}

// SystemDisk finds the disk that a decision installs on.
func (d Decision) SystemDisk(inventory *v1alpha1.MachineInventory) (Disk, bool) {
	for _, decided := range d.Disks {
		if decided.Role != v1alpha1.DiskSystem {
			continue
		}
		for _, disk := range Disks(inventory) {
			if Matches(decided.Match, disk.DiskInventory) {
				return disk, true
			}
		}
	}
	return Disk{}, false
}

// Matches tells whether a choice means a disk.
func Matches(match v1alpha1.DiskMatch, disk v1alpha1.DiskInventory) bool {
	return len(matching([]v1alpha1.DiskInventory{disk}, match)) == 1 && match != (v1alpha1.DiskMatch{})
}

// RoleOf is what a decision does with a disk; a disk that isn't named stays unused.
func (d Decision) RoleOf(disk v1alpha1.DiskInventory) (v1alpha1.DiskRole, string) {
	for _, decided := range d.Disks {
		if Matches(decided.Match, disk) {
			return decided.Role, decided.Name
		}
	}
	return v1alpha1.DiskUnused, ""
}

// Wiped lists the disks whose content a decision destroys: those that Talos partitions or formats.
func (d Decision) Wiped(inventory *v1alpha1.MachineInventory) []v1alpha1.DiskInventory {
	if inventory == nil {
		return nil
	}
	var wiped []v1alpha1.DiskInventory
	for _, disk := range inventory.Disks {
		switch role, _ := d.RoleOf(disk); role {
		case v1alpha1.DiskSystem, v1alpha1.DiskEphemeral, v1alpha1.DiskUserVolume:
			wiped = append(wiped, disk)
		}
	}
	return wiped
}
