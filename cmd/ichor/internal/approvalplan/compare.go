// SPDX-License-Identifier: Apache-2.0

package approvalplan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"maesh.dev/ichor/cmd/ichor/internal/proposal"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// difference is a field in which a machine was approved otherwise than the plan says.
type difference struct{ field, what string }

// differences compares what the entry says with what was approved. What the entry leaves open is as it should be: the plan
// that was carried out left it open too, and something was chosen then.
func (i *Item) differences(machine *v1alpha1.TalosMachine) []difference {
	spec := &machine.Spec
	var found []difference
	differ := func(field, was, wanted string) {
		found = append(found, difference{field, fmt.Sprintf("the machine was approved with %s, the plan says %s; a plan changes nothing that was approved", none(was), none(wanted))})
	}
	compare := func(field, was, wanted string) {
		if wanted != "" && was != wanted {
			differ(field, was, wanted)
		}
	}
	compare("clusterRef.name", spec.ClusterRef.Name, i.ClusterRef.Name)
	compare("role", string(spec.Role), string(i.Role))
	compare("hostname", spec.Hostname, i.Hostname)
	if spec.Approval != nil {
		compare("maintenanceFingerprint", spec.Approval.MaintenanceFingerprint, i.MaintenanceFingerprint)
	}
	if len(i.NodeLabels) > 0 && !maps.Equal(i.NodeLabels, spec.NodeLabels) {
		differ("nodeLabels", labels(spec.NodeLabels), labels(i.NodeLabels))
	}
	if i.InstallDisk != nil || len(i.Disks) > 0 {
		wanted := slices.Clone(i.Disks)
		if i.InstallDisk != nil {
			wanted = slices.Insert(wanted, 0, v1alpha1.MachineDisk{Match: *i.InstallDisk, Role: v1alpha1.DiskSystem})
		}
		was := spec.Disks
		if len(systemDisks(wanted)) == 0 {
			was = slices.DeleteFunc(slices.Clone(was), func(disk v1alpha1.MachineDisk) bool { return disk.Role == v1alpha1.DiskSystem })
		}
		if len(i.Disks) == 0 { // only the install disk is said
			was = systemDisks(was)
		}
		if !sameDisks(was, wanted, machine.Status.Inventory) {
			field := "disks"
			if i.InstallDisk != nil {
				field = "installDisk"
			}
			differ(field, disks(was), disks(wanted))
		}
	}
	if was, wanted, differs := i.networkDiffers(machine); differs {
		differ("network", was, wanted)
	}
	return found
}

func (i *Item) networkDiffers(machine *v1alpha1.TalosMachine) (approved, planned string, differs bool) {
	if i.Network == nil {
		return "", "", false
	}
	wanted, _ := i.decideNetwork(machine)
	was := v1alpha1.MachineNetwork{Addressing: v1alpha1.AddressingDHCP}
	if machine.Spec.Network != nil {
		was = *machine.Spec.Network
	}
	if i.Network.Interface == (Interface{}) {
		wanted.Interface = was.Interface
	}
	return screen.Network(machine.Spec.Network), screen.Network(wanted), !sameNetwork(&was, wanted)
}

func sameNetwork(a, b *v1alpha1.MachineNetwork) bool {
	vlan := func(network *v1alpha1.MachineNetwork) int32 {
		if network.VLAN == nil {
			return 0
		}
		return *network.VLAN
	}
	return strings.EqualFold(a.Interface.MAC, b.Interface.MAC) && a.Addressing == b.Addressing && slices.Equal(a.Addresses, b.Addresses) &&
		a.Gateway == b.Gateway && slices.Equal(a.Nameservers, b.Nameservers) && vlan(a) == vlan(b)
}

// sameDisks compares two choices of disks, in whatever order and by whatever name. A disk that is unused is as one that
// isn't named.
func sameDisks(a, b []v1alpha1.MachineDisk, inventory *v1alpha1.MachineInventory) bool {
	used := func(disks []v1alpha1.MachineDisk) []v1alpha1.MachineDisk {
		return slices.DeleteFunc(slices.Clone(disks), func(disk v1alpha1.MachineDisk) bool { return disk.Role == v1alpha1.DiskUnused })
	}
	a, b = used(a), used(b)
	return len(a) == len(b) && !slices.ContainsFunc(a, func(one v1alpha1.MachineDisk) bool {
		return !slices.ContainsFunc(b, func(other v1alpha1.MachineDisk) bool {
			return one.Role == other.Role && one.Name == other.Name && sameDisk(one.Match, other.Match, inventory)
		})
	})
}

func sameDisk(a, b v1alpha1.DiskMatch, inventory *v1alpha1.MachineInventory) bool {
	if a == b {
		return true
	}
	one, errOne := proposal.ResolveDisk(inventory, a)
	other, errOther := proposal.ResolveDisk(inventory, b)
	return errOne == nil && errOther == nil && one.Device == other.Device
}

func disks(disks []v1alpha1.MachineDisk) string {
	texts := make([]string, 0, len(disks))
	for _, disk := range disks {
		texts = append(texts, strings.TrimSpace(fmt.Sprintf("%s as %s %s", screen.DiskID(disk.Match), disk.Role, disk.Name)))
	}
	return strings.Join(texts, ", ")
}

func labels(labels map[string]string) string {
	texts := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		texts = append(texts, name+"="+labels[name])
	}
	return strings.Join(texts, ",")
}

func none(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
