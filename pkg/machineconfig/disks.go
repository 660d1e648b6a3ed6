// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// minVolumeSize is what a user volume needs at least; it grows to the size of its disk.
const minVolumeSize = "1GiB"

// DiskError is a decided disk that isn't to be found, or not alone, on the machine.
type DiskError struct {
	// Index in spec.disks.
	Index int
	Match v1alpha1.DiskMatch
	// Found are the devices that match: none, or several.
	Found []string
	// Why a single match can't be used; empty otherwise.
	Why string
}

func (e *DiskError) Error() string {
	what := fmt.Sprintf("spec.disks[%d] (%s)", e.Index, DescribeMatch(e.Match))
	switch {
	case e.Why != "":
		return fmt.Sprintf("%s: %s %s", what, strings.Join(e.Found, ", "), e.Why)
	case len(e.Found) == 0:
		return what + " is not on the machine; put the disk back, or remove the machine and approve it anew"
	default:
		return fmt.Sprintf("%s matches several disks: %s; the machine can't be told apart by it", what, strings.Join(e.Found, ", "))
	}
}

// DescribeMatch writes a disk's match for people.
func DescribeMatch(match v1alpha1.DiskMatch) string {
	var parts []string
	if match.Serial != "" {
		parts = append(parts, "serial "+match.Serial)
	}
	if match.WWID != "" {
		parts = append(parts, "wwid "+match.WWID)
	}
	return strings.Join(parts, ", ")
}

// MatchDisks are the disks of an inventory that a match chooses, by device.
func MatchDisks(match v1alpha1.DiskMatch, inventory *v1alpha1.MachineInventory) []v1alpha1.DiskInventory {
	if inventory == nil || match.Serial == "" && match.WWID == "" {
		return nil
	}
	var found []v1alpha1.DiskInventory
	for _, disk := range inventory.Disks {
		if (match.Serial == "" || disk.Serial == match.Serial) && (match.WWID == "" || disk.WWID == match.WWID) {
			found = append(found, disk)
		}
	}
	return found
}

// resolveDisks finds every decided disk on the machine and returns the match of the system disk.
func resolveDisks(disks []v1alpha1.MachineDisk, inventory *v1alpha1.MachineInventory) (v1alpha1.DiskMatch, error) {
	var system []v1alpha1.DiskMatch
	for i, disk := range disks {
		if disk.Role == v1alpha1.DiskSystem {
			system = append(system, disk.Match)
		}
		if disk.Role == v1alpha1.DiskUnused {
			continue
		}
		if err := resolveDisk(i, disk, inventory); err != nil {
			return v1alpha1.DiskMatch{}, err
		}
	}
	if len(system) != 1 {
		return v1alpha1.DiskMatch{}, fmt.Errorf("spec.disks: exactly one disk must have the role system, %d have", len(system))
	}
	return system[0], nil
}

func resolveDisk(index int, disk v1alpha1.MachineDisk, inventory *v1alpha1.MachineInventory) error {
	found := MatchDisks(disk.Match, inventory)
	if len(found) != 1 {
		return &DiskError{Index: index, Match: disk.Match, Found: devices(found)}
	}
	if found[0].ReadOnly || found[0].CDROM {
		return &DiskError{Index: index, Match: disk.Match, Found: devices(found), Why: "can't be written"}
	}
	// Talos' install selector treats * as a wildcard: Talos: pkg/machinery/config/types/v1alpha1, DiskMatchExpression.
	if disk.Role == v1alpha1.DiskSystem && strings.Contains(disk.Match.Serial+disk.Match.WWID, "*") {
		return &DiskError{Index: index, Match: disk.Match, Found: devices(found), Why: "has a name with an asterisk, which Talos would take for a pattern; choose it by the other name"}
	}
	return nil
}

func devices(disks []v1alpha1.DiskInventory) []string {
	var names []string
	for _, disk := range disks {
		names = append(names, disk.Device)
	}
	return names
}

// volumeDocuments are the volumes on disks other than the system disk. Disks with the roles storage and unused have no
// document: Talos leaves alone what no document selects.
func volumeDocuments(disks []v1alpha1.MachineDisk) ([]config.Document, error) {
	var documents []config.Document
	grow := true
	for i, disk := range disks {
		switch disk.Role {
		case v1alpha1.DiskEphemeral:
			selector, err := diskSelector(disk.Match)
			if err != nil {
				return nil, fmt.Errorf("spec.disks[%d]: %w", i, err)
			}
			volume := block.NewVolumeConfigV1Alpha1()
			volume.MetaName = constants.EphemeralPartitionLabel
			volume.ProvisioningSpec = block.ProvisioningSpec{DiskSelectorSpec: selector, ProvisioningGrow: &grow}
			documents = append(documents, volume)
		case v1alpha1.DiskUserVolume:
			selector, err := diskSelector(disk.Match)
			if err != nil {
				return nil, fmt.Errorf("spec.disks[%d]: %w", i, err)
			}
			volume := block.NewUserVolumeConfigV1Alpha1()
			volume.MetaName = disk.Name
			volume.ProvisioningSpec = block.ProvisioningSpec{
				DiskSelectorSpec:    selector,
				ProvisioningGrow:    &grow,
				ProvisioningMinSize: block.MustByteSize(minVolumeSize),
			}
			documents = append(documents, volume)
		}
	}
	return documents, nil
}

// diskSelector is the CEL expression that chooses exactly what match does.
func diskSelector(match v1alpha1.DiskMatch) (block.DiskSelector, error) {
	var terms []string
	if match.Serial != "" {
		terms = append(terms, "disk.serial == "+strconv.QuoteToASCII(match.Serial))
	}
	if match.WWID != "" {
		terms = append(terms, "disk.wwid == "+strconv.QuoteToASCII(match.WWID))
	}
	expression, err := cel.ParseBooleanExpression(strings.Join(terms, " && "), celenv.DiskLocator())
	if err != nil {
		return block.DiskSelector{}, fmt.Errorf("choose the disk with %s: %w", DescribeMatch(match), err)
	}
	return block.DiskSelector{Match: expression}, nil
}
