// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	// maxAddresses, maxLinks, maxDisks bound what is kept of a machine; the largest servers have less.
	maxAddresses = 16
	maxLinks     = 64
	maxDisks     = 256
	// maxUnmet bounds the unmet conditions; Talos has five.
	maxUnmet = 16
)

// facts sums an observation up, for a machine that was dialled at the given address.
func (o observation) facts(dialled netip.Addr) *Facts {
	facts := &Facts{
		Identity:     o.identity(),
		Inventory:    o.inventory(),
		FirmwareRead: o.system != nil,
		Addresses:    o.ownAddresses(dialled),
		SchematicID:  o.schematic(),
		Stage:        o.stage,
		SystemDisk:   o.installedOn(),
	}
	if o.hostname != nil {
		facts.Hostname = clean(o.hostname.TypedSpec().Hostname)
	}
	if o.version != nil {
		facts.TalosVersion = clean(o.version.TypedSpec().Version)
	}
	if o.nodename != nil {
		facts.NodeName = clean(o.nodename.TypedSpec().Nodename)
	}
	return facts
}

// identity is the normalised identity. Only the permanent addresses of physical links count: bonds, VLANs, bridges and
// pods' links share or invent theirs. A physical link without a permanent address doesn't count either: what it uses was
// made up at this boot.
func (o observation) identity() v1alpha1.MachineIdentity {
	var id identity.Identity
	if o.system != nil {
		id.UUID = clean(o.system.TypedSpec().UUID)
		id.SerialNumber = clean(o.system.TypedSpec().SerialNumber)
	}
	for _, link := range o.links {
		if spec := link.TypedSpec(); spec.Physical() && len(spec.PermanentAddr) > 0 {
			id.MACAddresses = append(id.MACAddresses, spec.PermanentAddr.String())
		}
	}
	id = identity.Normalize(id)
	id.MACAddresses = id.MACAddresses[:min(len(id.MACAddresses), maxLinks)]
	return v1alpha1.MachineIdentity(id)
}

// ownAddresses are the machine's unicast addresses: the dialled one first, then the others in order, without loopback
// and link-local ones.
func (o observation) ownAddresses(dialled netip.Addr) []string {
	var own []netip.Addr
	if o.nodeIPs != nil {
		own = o.nodeIPs.TypedSpec().IPs()
	} else {
		for _, address := range o.addresses {
			own = append(own, address.TypedSpec().Address.Addr())
		}
	}
	slices.SortFunc(own, netip.Addr.Compare)
	out := []string{dialled.String()}
	for _, address := range own {
		address = address.Unmap().WithZone("")
		switch {
		case len(out) == maxAddresses, address == dialled, !address.IsGlobalUnicast():
		case slices.Contains(out, address.String()):
		default:
			out = append(out, address.String())
		}
	}
	return out
}

// schematic is the Image Factory's schematic; Talos lists it as an extension of that name. Source: Talos,
// pkg/machinery/constants (1.14: ImageFactorySchematicExtensionName).
func (o observation) schematic() string {
	for _, extension := range o.extensions {
		if spec := extension.TypedSpec(); spec.Metadata.Name == "schematic" {
			return clean(spec.Metadata.Version)
		}
	}
	return ""
}

// installedOn is the disk that Talos is installed on; nil while it isn't.
func (o observation) installedOn() *v1alpha1.SystemDisk {
	if o.systemDisk == nil {
		return nil
	}
	spec := o.systemDisk.TypedSpec()
	disk := &v1alpha1.SystemDisk{Device: clean(spec.DevPath)}
	for _, candidate := range o.disks {
		if candidate.Metadata().ID() == spec.DiskID {
			disk.Device = devicePath(candidate)
			disk.Serial = clean(candidate.TypedSpec().Serial)
			disk.WWID = clean(candidate.TypedSpec().WWID)
		}
	}
	if disk.Device == "" {
		disk.Device = "/dev/" + clean(spec.DiskID)
	}
	return disk
}

// linkAddresses are the addresses of a link, with prefix length.
func (o observation) linkAddresses(link *network.LinkStatus) []string {
	var out []netip.Prefix
	for _, address := range o.addresses {
		spec := address.TypedSpec()
		if spec.LinkName == link.Metadata().ID() && !spec.Address.Addr().IsLinkLocalUnicast() && spec.Address.IsValid() {
			out = append(out, spec.Address)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	texts := make([]string, 0, len(out))
	for _, prefix := range out[:min(len(out), maxAddresses)] {
		texts = append(texts, prefix.String())
	}
	return slices.Compact(texts)
}

// stages are Talos' words for its stages, as the API spells them.
var stages = map[runtime.MachineStage]v1alpha1.MachineStage{
	runtime.MachineStageBooting:      v1alpha1.StageBooting,
	runtime.MachineStageInstalling:   v1alpha1.StageInstalling,
	runtime.MachineStageMaintenance:  v1alpha1.StageMaintenance,
	runtime.MachineStageRunning:      v1alpha1.StageRunning,
	runtime.MachineStageRebooting:    v1alpha1.StageRebooting,
	runtime.MachineStageShuttingDown: v1alpha1.StageShuttingDown,
	runtime.MachineStageResetting:    v1alpha1.StageResetting,
	runtime.MachineStageUpgrading:    v1alpha1.StageUpgrading,
}

// stageOf translates Talos' summary. A stage that this version of Ichor doesn't know is unknown.
func stageOf(status runtime.MachineStatusSpec) MachineStage {
	stage, known := stages[status.Stage]
	if !known {
		stage = v1alpha1.StageUnknown
	}
	out := MachineStage{Stage: stage, Ready: status.Status.Ready}
	for _, unmet := range status.Status.UnmetConditions[:min(len(status.Status.UnmetConditions), maxUnmet)] {
		out.Unmet = append(out.Unmet, strings.TrimSuffix(fmt.Sprintf("%s: %s", clean(unmet.Name), clean(unmet.Reason)), ": "))
	}
	return out
}
