// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
)

const systemInfoOwner = "hardware.SystemInfoController"

func hardwareGroups(v View) []Group {
	return []Group{
		group(systemInfoOwner, hardware.NamespaceName, hardware.SystemInformationType, systemInformation(v)),
		group(systemInfoOwner, hardware.NamespaceName, hardware.ProcessorType, processor(v)),
		group(systemInfoOwner, hardware.NamespaceName, hardware.MemoryModuleType, memoryModules(v)...),
		group("hardware.PCIDevicesController", hardware.NamespaceName, hardware.PCIDeviceType, pciDevices(v)...),
		group("hardware.PCRStatusController", hardware.NamespaceName, hardware.PCRStatusType, hardware.NewPCCRStatus(constants.UKIPCR)),
	}
}

// systemInformation has the UUID of META's override if there is one, as Talos does.
func systemInformation(v View) resource.Resource {
	r := hardware.NewSystemInformation(hardware.SystemInformationID)
	s := r.TypedSpec()
	s.Manufacturer, s.ProductName = v.Machine.Manufacturer, v.Machine.ProductName
	s.Version, s.SerialNumber, s.WakeUpType = "1.0", v.Machine.SerialNumber, "Power Switch"
	s.UUID = v.Machine.UUID
	if override := v.Meta[meta.UUIDOverride]; override != "" {
		s.UUID = override
	}
	return r
}

func processor(v View) resource.Resource {
	r := hardware.NewProcessorInfo("CPU-0")
	s := r.TypedSpec()
	s.Socket, s.Manufacturer, s.ProductName = "CPU 0", "Hollow", "Hollow CPU @ 2.60GHz"
	s.MaxSpeed, s.BootSpeed, s.Status = 4000, 2600, 65
	s.CoreCount, s.CoreEnabled, s.ThreadCount = uint32(v.Machine.CPUs), uint32(v.Machine.CPUs), uint32(v.Machine.CPUs)
	return r
}

// memoryModules spreads the memory over two DIMMs and shows two empty slots, which Talos lists with an all-zero spec.
func memoryModules(v View) []resource.Resource {
	const slots, populated = 4, 2
	mebibytes := uint32(uint64(v.Machine.Memory) >> 20)
	var modules []resource.Resource
	for i := range slots {
		r := hardware.NewMemoryModuleInfo(fmt.Sprintf("DIMM-%d-BANK-%d", i, i))
		if i < populated {
			s := r.TypedSpec()
			s.DeviceLocator, s.BankLocator = fmt.Sprintf("DIMM %d", i), fmt.Sprintf("BANK %d", i)
			s.Size, s.Speed, s.Manufacturer = mebibytes/populated, 3200, "Hollow"
			s.SerialNumber = fmt.Sprintf("%08X", i+1)
		}
		modules = append(modules, r)
	}
	return modules
}

func pciDevices(v View) []resource.Resource {
	var devices []resource.Resource
	for _, l := range v.Machine.Links {
		if l.Kind != "" || l.BusPath == "" {
			continue
		}
		r := hardware.NewPCIDeviceInfo(l.BusPath)
		s := r.TypedSpec()
		s.Class, s.Subclass, s.Vendor, s.Product, s.Driver = "Network controller", "Ethernet controller", "Hollow", "Hollow NIC", l.Driver
		s.ClassID, s.SubclassID, s.VendorID, s.ProductID = "0x02", "0x00", "0x8086", "0x1557"
		devices = append(devices, r)
	}
	return devices
}
