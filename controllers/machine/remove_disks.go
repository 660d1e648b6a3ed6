// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
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
			case machineconfig.IsSystemDisk(found[0], facts.SystemDisk):
				return nil, fmt.Sprintf("the disk with %s is the system disk, which is wiped anyway; take it out of spec.removal.wipeDisks to go on", machineconfig.DescribeMatch(match))
			}
			devices = append(devices, found[0].Device)
		}
	}
	fates := machineconfig.Fates(v.m.Spec.Disks, inventory, facts.SystemDisk, devices)
	if !slices.Equal(fates, v.removal().Disks) {
		v.removal().Disks = fates
	}
	return devices, ""
}
