// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"

	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// observation holds the resources that say who a machine is and what it has. Any may be missing: Talos makes them as it
// learns them. All are readable with os:reader, so also in maintenance mode.
type observation struct {
	system     *hardware.SystemInformation
	processors []*hardware.Processor
	memory     []*hardware.MemoryModule
	links      []*network.LinkStatus
	addresses  []*network.AddressStatus
	nodeIPs    *network.NodeAddress
	hostname   *network.HostnameStatus
	disks      []*block.Disk
	volumes    []*block.DiscoveredVolume
	systemDisk *block.SystemDisk
	security   *runtime.SecurityState
	cmdline    *runtime.KernelCmdline
	version    *runtime.Version
	extensions []*runtime.ExtensionStatus
	nodename   *k8s.Nodename
	stage      MachineStage
}

// observe reads everything.
func observe(ctx context.Context, r reader) (observation, error) {
	seen, err := observeIdentity(ctx, r)
	if err != nil {
		return seen, err
	}
	var errs []error
	note := func(err error) { errs = append(errs, err) }

	seen.stage, err = observeStage(ctx, r)
	note(err)
	seen.processors, err = list[*hardware.Processor](ctx, r, hardware.NamespaceName, hardware.ProcessorType)
	note(err)
	seen.memory, err = list[*hardware.MemoryModule](ctx, r, hardware.NamespaceName, hardware.MemoryModuleType)
	note(err)
	seen.addresses, err = list[*network.AddressStatus](ctx, r, network.NamespaceName, network.AddressStatusType)
	note(err)
	seen.nodeIPs, err = observeNodeIPs(ctx, r)
	note(err)
	seen.hostname, err = get[*network.HostnameStatus](ctx, r, network.NamespaceName, network.HostnameStatusType, network.HostnameID)
	note(err)
	seen.disks, err = list[*block.Disk](ctx, r, block.NamespaceName, block.DiskType)
	note(err)
	seen.volumes, err = list[*block.DiscoveredVolume](ctx, r, block.NamespaceName, block.DiscoveredVolumeType)
	note(err)
	seen.systemDisk, err = get[*block.SystemDisk](ctx, r, block.NamespaceName, block.SystemDiskType, block.SystemDiskID)
	note(err)
	seen.security, err = get[*runtime.SecurityState](ctx, r, runtime.NamespaceName, runtime.SecurityStateType, runtime.SecurityStateID)
	note(err)
	seen.cmdline, err = get[*runtime.KernelCmdline](ctx, r, runtime.NamespaceName, runtime.KernelCmdlineType, runtime.KernelCmdlineID)
	note(err)
	seen.version, err = get[*runtime.Version](ctx, r, runtime.NamespaceName, runtime.VersionType, "version")
	note(err)
	seen.extensions, err = list[*runtime.ExtensionStatus](ctx, r, runtime.NamespaceName, runtime.ExtensionStatusType)
	note(err)
	seen.nodename, err = get[*k8s.Nodename](ctx, r, k8s.NamespaceName, k8s.NodenameType, k8s.NodenameID)
	note(err)
	return seen, errors.Join(errs...)
}

// observeIdentity reads what says which machine it is.
func observeIdentity(ctx context.Context, r reader) (seen observation, err error) {
	seen.system, err = get[*hardware.SystemInformation](ctx, r, hardware.NamespaceName, hardware.SystemInformationType, hardware.SystemInformationID)
	if err != nil {
		return seen, err
	}
	seen.links, err = list[*network.LinkStatus](ctx, r, network.NamespaceName, network.LinkStatusType)
	return seen, err
}

// observeNodeIPs reads the machine's own addresses, those of pods and Services left out where Talos can tell.
func observeNodeIPs(ctx context.Context, r reader) (*network.NodeAddress, error) {
	for _, id := range []string{
		network.FilteredNodeAddressID(network.NodeAddressRoutedID, k8s.NodeAddressFilterNoK8s),
		network.NodeAddressRoutedID,
		network.NodeAddressCurrentID,
	} {
		addresses, err := get[*network.NodeAddress](ctx, r, network.NamespaceName, network.NodeAddressType, id)
		if addresses != nil || err != nil {
			return addresses, err
		}
	}
	return nil, nil
}

// observeStage reads Talos' own summary.
func observeStage(ctx context.Context, r reader) (MachineStage, error) {
	status, err := get[*runtime.MachineStatus](ctx, r, runtime.NamespaceName, runtime.MachineStatusType, runtime.MachineStatusID)
	if err != nil || status == nil {
		return MachineStage{Stage: v1alpha1.StageUnknown}, err
	}
	return stageOf(*status.TypedSpec()), nil
}
