// SPDX-License-Identifier: Apache-2.0

package talos_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	cosiresource "github.com/cosi-project/runtime/pkg/resource"
	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"k8s.io/apimachinery/pkg/api/resource"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

func with[R cosiresource.Resource](r R, set func(R)) R {
	set(r)
	return r
}

func link(name, permanent, current, kind string, linkType nethelpers.LinkType) cosiresource.Resource {
	return with(network.NewLinkStatus(network.NamespaceName, name), func(r *network.LinkStatus) {
		spec := r.TypedSpec()
		spec.Type, spec.Kind, spec.LinkState, spec.SpeedMegabits = linkType, kind, true, 10000
		_ = spec.PermanentAddr.UnmarshalText([]byte(permanent))
		_ = spec.HardwareAddr.UnmarshalText([]byte(current))
	})
}

func address(link, prefix string) cosiresource.Resource {
	parsed := netip.MustParsePrefix(prefix)
	return with(network.NewAddressStatus(network.NamespaceName, network.AddressID(link, parsed)), func(r *network.AddressStatus) {
		r.TypedSpec().LinkName, r.TypedSpec().Address = link, parsed
	})
}

func disk(id string, size uint64, serial, wwid, transport string) cosiresource.Resource {
	return with(block.NewDisk(block.NamespaceName, id), func(r *block.Disk) {
		spec := r.TypedSpec()
		spec.DevPath, spec.Serial, spec.WWID, spec.Transport, spec.Model = "/dev/"+id, serial, wwid, transport, "model "+id
		spec.SetSize(size)
	})
}

func volume(id, kind, name string) cosiresource.Resource {
	return with(block.NewDiscoveredVolume(block.NamespaceName, id), func(r *block.DiscoveredVolume) {
		r.TypedSpec().Type, r.TypedSpec().Name = kind, name
	})
}

func system(uuid, serial string) cosiresource.Resource {
	return with(hardware.NewSystemInformation(hardware.SystemInformationID), func(r *hardware.SystemInformation) {
		spec := r.TypedSpec()
		spec.UUID, spec.SerialNumber, spec.Manufacturer, spec.ProductName = uuid, serial, "Acme\x00", " R1 "
	})
}

func processor(id, model string, cores uint32) cosiresource.Resource {
	return with(hardware.NewProcessorInfo(id), func(r *hardware.Processor) {
		r.TypedSpec().ProductName, r.TypedSpec().CoreCount, r.TypedSpec().ThreadCount = model, cores, 2*cores
	})
}

func memory(id string, mebibytes uint32) cosiresource.Resource {
	return with(hardware.NewMemoryModuleInfo(id), func(r *hardware.MemoryModule) { r.TypedSpec().Size = mebibytes })
}

func nodeAddresses(id string, prefixes ...string) cosiresource.Resource {
	return with(network.NewNodeAddress(network.NamespaceName, id), func(r *network.NodeAddress) {
		for _, prefix := range prefixes {
			r.TypedSpec().Addresses = append(r.TypedSpec().Addresses, netip.MustParsePrefix(prefix))
		}
	})
}

func machineStatus(stage runtime.MachineStage, ready bool, unmet ...runtime.UnmetCondition) cosiresource.Resource {
	return with(runtime.NewMachineStatus(), func(r *runtime.MachineStatus) {
		r.TypedSpec().Stage = stage
		r.TypedSpec().Status = runtime.MachineStatusStatus{Ready: ready, UnmetConditions: unmet}
	})
}

func talosVersion(version string) cosiresource.Resource {
	return with(runtime.NewVersion(), func(r *runtime.Version) { r.TypedSpec().Version = version })
}

func schematic(id string) cosiresource.Resource {
	return with(runtime.NewExtensionStatus(runtime.NamespaceName, "3"), func(r *runtime.ExtensionStatus) {
		r.TypedSpec().Metadata.Name, r.TypedSpec().Metadata.Version = "schematic", id
	})
}

const uuid = "4c4c4544-0051-3610-8052-b4c04f4c3132"

// server is a machine as it waits in maintenance mode.
func serverResources() []cosiresource.Resource {
	return []cosiresource.Resource{
		system(strings.ToUpper(uuid), " Q6RL12 "),
		processor("CPU-1", "EPYC 1", 8), processor("CPU-2", "EPYC 1", 8), processor("CPU-3", "", 0),
		memory("A1", 16384), memory("A2", 16384), memory("A3", 0),
		link("enp2s0", "02:00:5e:00:53:02", "02:00:5e:00:53:02", "", nethelpers.LinkEther),
		link("enp1s0", "02:00:5E:00:53:01", "02:00:5e:00:53:99", "", nethelpers.LinkEther),
		link("eth9", "", "02:00:5e:00:53:09", "", nethelpers.LinkEther),
		link("bond0", "02:00:5e:00:53:aa", "02:00:5e:00:53:01", "bond", nethelpers.LinkEther),
		link("cilium_host", "02:00:5e:00:53:bb", "02:00:5e:00:53:bb", "veth", nethelpers.LinkEther),
		link("lo", "", "00:00:00:00:00:00", "", nethelpers.LinkLoopbck),
		address("enp1s0", "10.0.0.7/24"), address("enp1s0", "fe80::1/64"), address("lo", "127.0.0.1/8"),
		nodeAddresses(network.NodeAddressCurrentID, "10.0.0.7/24", "127.0.0.1/8", "10.0.9.7/24", "fe80::1/64", "2001:db8::7/64"),
		disk("sdb", 4_000_000_000_000, "S2", "naa.02", "sata"), disk("nvme0n1", 512_000_000_000, "S1", "eui.01", "nvme"),
		disk("loop0", 70_000_000, "", "", ""), disk("dm-0", 512_000_000_000, "", "", ""),
		volume("sdb", "disk", "gpt"), volume("sdb1", "partition", "xfs"), volume("nvme0n1", "disk", ""),
		with(runtime.NewSecurityStateSpec(runtime.NamespaceName), func(r *runtime.SecurityState) {
			r.TypedSpec().SecureBoot, r.TypedSpec().BootedWithUKI = true, true
		}),
		with(runtime.NewKernelCmdline(), func(r *runtime.KernelCmdline) {
			r.TypedSpec().Cmdline = "talos.platform=metal lockdown=integrity lockdown=confidentiality lockdown=x"
		}),
		with(network.NewHostnameStatus(network.NamespaceName, network.HostnameID), func(r *network.HostnameStatus) { r.TypedSpec().Hostname = "talos-abc" }),
		talosVersion("v1.13.9"), schematic("376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"),
		machineStatus(runtime.MachineStageMaintenance, true),
	}
}

func TestFactsOfAMachineInMaintenance(t *testing.T) {
	t.Parallel()
	node := maintenanceNode(t)
	node.put(t, serverResources()...)
	got, err := node.dialMaintenance(t).Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := &talos.Facts{
		Identity: v1alpha1.MachineIdentity{UUID: uuid, SerialNumber: "Q6RL12", MACAddresses: []string{"02:00:5e:00:53:01", "02:00:5e:00:53:02"}},
		Inventory: &v1alpha1.MachineInventory{
			Manufacturer: "Acme", ProductName: "R1", SecureBoot: true, UnifiedKernelImage: true, KernelLockdown: v1alpha1.KernelLockdownConfidentiality,
			CPU:    v1alpha1.CPUInventory{Model: "EPYC 1", Sockets: 2, Cores: 16, Threads: 32},
			Memory: resource.MustParse("32Gi"),
			Disks: []v1alpha1.DiskInventory{
				{Device: "/dev/nvme0n1", Size: resource.MustParse("512e9"), Model: "model nvme0n1", Serial: "S1", WWID: "eui.01", Transport: "nvme"},
				{Device: "/dev/sdb", Size: resource.MustParse("4e12"), Model: "model sdb", Serial: "S2", WWID: "naa.02", Transport: "sata", Signature: "gpt"},
			},
			Links: []v1alpha1.LinkInventory{
				{Name: "enp1s0", PermanentMAC: "02:00:5e:00:53:01", MAC: "02:00:5e:00:53:99", SpeedMegabits: 10000, Up: true, Addresses: []string{"10.0.0.7/24"}},
				{Name: "enp2s0", PermanentMAC: "02:00:5e:00:53:02", MAC: "02:00:5e:00:53:02", SpeedMegabits: 10000, Up: true, Addresses: []string{}},
				{Name: "eth9", MAC: "02:00:5e:00:53:09", SpeedMegabits: 10000, Up: true, Addresses: []string{}},
			},
		},
		FirmwareRead: true,
		Addresses:    []string{"127.0.0.1", "10.0.0.7", "10.0.9.7", "2001:db8::7"},
		Hostname:     "talos-abc",
		TalosVersion: "v1.13.9",
		SchematicID:  "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba",
		Stage:        talos.MachineStage{Stage: v1alpha1.StageMaintenance, Ready: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}

func TestFactsOfARunningMachine(t *testing.T) {
	t.Parallel()
	node, credentials := configuredNode(t)
	node.put(t, system(uuid, "S1"), disk("sda", 1<<40, "D1", "naa.1", "sas"),
		with(block.NewSystemDisk(block.NamespaceName, block.SystemDiskID), func(r *block.SystemDisk) {
			r.TypedSpec().DiskID, r.TypedSpec().DevPath = "sda", "/dev/sda"
		}),
		with(k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID), func(r *k8s.Nodename) { r.TypedSpec().Nodename = "cp-1" }),
		nodeAddresses(network.NodeAddressCurrentID, "10.0.0.7/24", "10.244.0.1/24"),
		nodeAddresses(network.NodeAddressRoutedID, "10.0.0.7/24", "10.244.0.1/24"),
		nodeAddresses(network.FilteredNodeAddressID(network.NodeAddressRoutedID, k8s.NodeAddressFilterNoK8s), "10.0.0.7/24"),
		machineStatus(runtime.MachineStageBooting, false, runtime.UnmetCondition{Name: "services", Reason: "etcd not running"}, runtime.UnmetCondition{Name: "time"}),
	)
	got, err := node.dialConfigured(t, credentials).Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&v1alpha1.SystemDisk{Device: "/dev/sda", Serial: "D1", WWID: "naa.1"}, got.SystemDisk); diff != "" {
		t.Errorf("system disk (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"127.0.0.1", "10.0.0.7"}, got.Addresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(talos.MachineStage{Stage: v1alpha1.StageBooting, Unmet: []string{"services: etcd not running", "time"}}, got.Stage); diff != "" {
		t.Errorf("stage (-want +got):\n%s", diff)
	}
	if got.NodeName != "cp-1" {
		t.Errorf("node name %q", got.NodeName)
	}
}

func TestFactsOfAMachineThatHasReadNothingYet(t *testing.T) {
	t.Parallel()
	got, err := maintenanceNode(t).dialMaintenance(t).Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := &talos.Facts{Addresses: []string{"127.0.0.1"}, Stage: talos.MachineStage{Stage: v1alpha1.StageUnknown}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}

func TestFactsOfAMachineWithoutFirmwareTables(t *testing.T) {
	t.Parallel()
	node := maintenanceNode(t)
	node.put(t, link("end0", "02:00:5e:00:53:01", "02:00:5e:00:53:01", "", nethelpers.LinkEther), disk("mmcblk0", 64e9, "M1", "", "mmc"))
	got, err := node.dialMaintenance(t).Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.FirmwareRead || got.Inventory == nil || len(got.Inventory.Disks) != 1 || got.Identity.UUID != "" {
		t.Errorf("got firmware read %t, inventory %+v, identity %+v", got.FirmwareRead, got.Inventory, got.Identity)
	}
}

func TestFactsBoundWhatAMachineMaySay(t *testing.T) {
	t.Parallel()
	node := maintenanceNode(t)
	long := strings.Repeat("é", 100_000)
	resources := []cosiresource.Resource{system(long, "\x1b[31m"+long+"\n")}
	for i := range 400 {
		id := fmt.Sprintf("sd%03d", i)
		resources = append(resources, disk(id, 1, long[:1000], "", ""))
	}
	node.put(t, resources...)
	got, err := node.dialMaintenance(t).Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Identity.UUID) > 253 || len(got.Identity.SerialNumber) > 253 || strings.ContainsAny(got.Identity.SerialNumber, "\x1b\n") {
		t.Errorf("identity of %d and %d bytes", len(got.Identity.UUID), len(got.Identity.SerialNumber))
	}
	if n := len(got.Inventory.Disks); n != 256 {
		t.Errorf("%d disks, want 256", n)
	}
}

func TestIdentityAndStage(t *testing.T) {
	t.Parallel()
	node, credentials := configuredNode(t)
	node.put(t, system(uuid, "S1"), link("enp1s0", "02:00:5e:00:53:01", "02:00:5e:00:53:01", "", nethelpers.LinkEther),
		machineStatus(runtime.MachineStageShuttingDown, true))
	connection := node.dialConfigured(t, credentials)
	id, err := connection.Identity(t.Context())
	want := v1alpha1.MachineIdentity{UUID: uuid, SerialNumber: "S1", MACAddresses: []string{"02:00:5e:00:53:01"}}
	if diff := cmp.Diff(want, id); diff != "" || err != nil {
		t.Errorf("identity, error %v (-want +got):\n%s", err, diff)
	}
	stage, err := connection.Stage(t.Context())
	if err != nil || stage.Stage != v1alpha1.StageShuttingDown {
		t.Errorf("stage %+v, error %v", stage, err)
	}
}
