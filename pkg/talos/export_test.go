// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"net/netip"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// What the tests of this package look at from outside.
var (
	ConfigurationBytes = configurationBytes
	BootIDOf           = bootIDOf
	BannerWords        = bannerWords
	WithoutSecrets     = withoutSecrets
	Clean              = clean
	Untar              = untar
)

// FactsFromRaw decodes one resource and sums up a machine that has nothing else.
func FactsFromRaw(raw *cosi.Resource) *Facts {
	var seen observation
	if item, err := decode[*hardware.SystemInformation](raw); err == nil {
		seen.system = item
	}
	if item, err := decode[*hardware.MemoryModule](raw); err == nil {
		seen.memory = append(seen.memory, item)
	}
	if item, err := decode[*hardware.Processor](raw); err == nil {
		seen.processors = append(seen.processors, item)
	}
	if item, err := decode[*network.LinkStatus](raw); err == nil {
		seen.links = append(seen.links, item)
	}
	if item, err := decode[*network.AddressStatus](raw); err == nil {
		seen.addresses = append(seen.addresses, item)
	}
	if item, err := decode[*network.NodeAddress](raw); err == nil {
		seen.nodeIPs = item
	}
	if item, err := decode[*block.Disk](raw); err == nil {
		seen.disks = append(seen.disks, item)
	}
	if item, err := decode[*block.DiscoveredVolume](raw); err == nil {
		seen.volumes = append(seen.volumes, item)
	}
	if item, err := decode[*block.SystemDisk](raw); err == nil {
		seen.systemDisk = item
	}
	if item, err := decode[*runtime.MachineStatus](raw); err == nil {
		seen.stage = stageOf(*item.TypedSpec())
	}
	if item, err := decode[*runtime.ExtensionStatus](raw); err == nil {
		seen.extensions = append(seen.extensions, item)
	}
	if item, err := decode[*runtime.SecurityState](raw); err == nil {
		seen.security = item
	}
	if item, err := decode[*runtime.Version](raw); err == nil {
		seen.version = item
	}
	return seen.facts(netip.MustParseAddr("127.0.0.1"))
}
