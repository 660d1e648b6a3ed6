// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/extensions"
	"github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/cri"
	"github.com/siderolabs/talos/pkg/machinery/resources/files"
	"github.com/siderolabs/talos/pkg/machinery/resources/perf"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
)

func runtimeGroups(v View) []Group {
	ns := runtime.NamespaceName
	return append([]Group{
		group("runtime.VersionController", ns, runtime.VersionType, version(v)),
		group("runtime.ExtensionStatusController", ns, runtime.ExtensionStatusType, extensionStatuses(v)...),
		group("runtime.SecurityStateController", ns, runtime.SecurityStateType, securityState(v)),
		group("network.PlatformConfigApplyController", ns, runtime.PlatformMetadataType, platformMetadata(v)),
		group("runtime.MetaController", ns, runtime.MetaKeyType, metaKeys(v)...),
		group("runtime.MetaController", ns, runtime.MetaLoadedType, metaLoaded()),
		group("runtime.UniqueMachineTokenController", ns, runtime.UniqueMachineTokenType, uniqueToken(v)),
		group("runtime.KernelCmdlineController", ns, runtime.KernelCmdlineType, kernelCmdline(v.Machine.SecureBoot)),
		group("runtime.DevicesStatusController", ns, runtime.DevicesStatusType, devicesStatus()),
		group("runtime.EnvironmentController", ns, runtime.EnvironmentType, runtime.NewEnvironment("machined")),
		group("v1alpha1.ServiceController", ns, v1alpha1.ServiceType, services(v)...),
		group("runtime.ServicePIDController", ns, runtime.ServicePIDType, servicePIDs(v)...),
		group("time.SyncController", ns, time.StatusType, timeStatus()),
		group("perf.StatsController", perf.NamespaceName, perf.CPUType, perf.NewCPU()),
		group("perf.StatsController", perf.NamespaceName, perf.MemoryType, perf.NewMemory()),
		group("cri.ImageCacheConfigController", cri.NamespaceName, cri.ImageCacheConfigType, cri.NewImageCacheConfig()),
		group("files.EtcFileController", files.NamespaceName, files.EtcFileStatusType, etcFiles()...),
	}, maintenanceGroups(v)...)
}

func maintenanceGroups(v View) []Group {
	ns := runtime.NamespaceName
	return []Group{
		group("runtime.APIServiceConfigController", ns, runtime.APIServiceConfigType, apiService(v)...),
		group("runtime.MaintenanceConfigController", ns, runtime.MaintenanceServiceConfigType, maintenanceService(v)),
		group("config.AcquireController", ns, runtime.MaintenanceServiceRequestType,
			when(v.Maintenance && v.APIOpen, func() resource.Resource { return runtime.NewMaintenanceServiceRequest() })...),
	}
}

func version(v View) resource.Resource {
	r := runtime.NewVersion()
	r.TypedSpec().Name, r.TypedSpec().Version = "Talos", v.Version
	return r
}

// extensionStatuses lists the system extensions; the schematic shows as one with the id as its version.
func extensionStatuses(v View) []resource.Resource {
	var list []resource.Resource
	add := func(name, version string) {
		r := runtime.NewExtensionStatus(runtime.NamespaceName, fmt.Sprintf("%03d.%s-%s", len(list), name, version))
		*r.TypedSpec() = extensions.Layer{
			Image:    fmt.Sprintf("%03d.%s-%s.sqsh", len(list), name, version),
			Metadata: extensions.Metadata{Name: name, Version: version, Author: "Hollow Works"},
		}
		list = append(list, r)
	}
	for _, name := range v.Machine.Extensions {
		add(name, strings.TrimPrefix(v.Version, "v"))
	}
	if v.Schematic != "" {
		add("schematic", v.Schematic)
	}
	return list
}

func securityState(v View) resource.Resource {
	r := runtime.NewSecurityStateSpec(runtime.NamespaceName)
	s := r.TypedSpec()
	s.SecureBoot, s.BootedWithUKI, s.ModuleSignatureEnforced = v.Machine.SecureBoot, true, true
	s.SELinuxState = runtime.SELinuxStatePermissive
	return r
}

func platformMetadata(v View) resource.Resource {
	r := runtime.NewPlatformMetadataSpec(runtime.NamespaceName, runtime.PlatformMetadataID)
	r.TypedSpec().Platform = constants.PlatformMetal
	r.TypedSpec().InstanceID = v.Machine.UUID
	return r
}

func metaKeys(v View) []resource.Resource {
	var list []resource.Resource
	for tag, value := range v.Meta {
		r := runtime.NewMetaKey(runtime.NamespaceName, runtime.MetaKeyTagToID(tag))
		r.TypedSpec().Value = value
		list = append(list, r)
	}
	return list
}

func metaLoaded() resource.Resource {
	r := runtime.NewMetaLoaded()
	r.TypedSpec().Done = true
	return r
}

func uniqueToken(v View) resource.Resource {
	r := runtime.NewUniqueMachineToken()
	r.TypedSpec().Token = v.Meta[meta.UniqueMachineToken]
	return r
}

func kernelCmdline(secureBoot bool) resource.Resource {
	r := runtime.NewKernelCmdline()
	r.TypedSpec().Cmdline = "talos.platform=metal console=tty0 init_on_alloc=1 slab_nomerge pti=on consoleblank=0"
	if secureBoot { // Talos: pkg/machinery/kernel/kernel.go, SecureBootArgs
		r.TypedSpec().Cmdline += " lockdown=confidentiality"
	}
	return r
}

func devicesStatus() resource.Resource {
	r := runtime.NewDevicesStatus(runtime.NamespaceName, runtime.DevicesID)
	r.TypedSpec().Ready = true
	return r
}

func services(v View) []resource.Resource {
	var list []resource.Resource
	for _, s := range v.Services {
		r := v1alpha1.NewService(s.ID)
		r.TypedSpec().Running, r.TypedSpec().Healthy, r.TypedSpec().Unknown = s.Running, s.Healthy, s.Unknown
		list = append(list, r)
	}
	return list
}

func servicePIDs(v View) []resource.Resource {
	var list []resource.Resource
	for _, s := range v.Services {
		if s.PID > 0 {
			r := runtime.NewServicePID(s.ID)
			r.TypedSpec().PID = s.PID
			list = append(list, r)
		}
	}
	return list
}

func timeStatus() resource.Resource {
	r := time.NewStatus()
	r.TypedSpec().Synced = true
	return r
}

func etcFiles() []resource.Resource {
	var list []resource.Resource
	for _, name := range []string{"cri/conf.d/01-registries.part", "cri/conf.d/cri.toml", "hosts", "machine-id", "ssl/certs/ca-certificates.crt"} {
		r := files.NewEtcFileStatus(files.NamespaceName, name)
		r.TypedSpec().SpecVersion = "1"
		list = append(list, r)
	}
	return list
}

func apiService(v View) []resource.Resource {
	return when(v.APIOpen, func() resource.Resource {
		r := runtime.NewAPIServiceConfig()
		s := r.TypedSpec()
		s.ListenAddress = fmt.Sprintf(":%d", constants.ApidPort)
		s.NodeRoutingDisabled, s.ReadonlyRoleMode, s.SkipVerifyingClientCert = v.Maintenance, v.Maintenance, v.Maintenance
		return r
	})
}

func maintenanceService(v View) resource.Resource {
	r := runtime.NewMaintenanceServiceConfig()
	r.TypedSpec().ListenAddress = fmt.Sprintf(":%d", constants.ApidPort)
	if v.Address.IsValid() {
		r.TypedSpec().ReachableAddresses = []netip.Addr{v.Address.Addr()}
	}
	return r
}
