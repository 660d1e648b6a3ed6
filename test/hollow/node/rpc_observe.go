// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"maesh.dev/ichor/test/hollow/facts"
)

// Version implements MachineService.
func (s *machineService) Version(context.Context, *emptypb.Empty) (*machine.VersionResponse, error) {
	b := s.boot
	v := &machine.Version{
		Version: &machine.VersionInfo{
			Tag: b.slot.Version, Sha: b.profile.Sha, Built: b.profile.Built, GoVersion: b.profile.GoVersion, Os: "linux", Arch: runtime.GOARCH,
		},
		Platform: &machine.PlatformInfo{Name: constants.PlatformMetal, Mode: validationMode{}.String()},
	}
	if b.configured() {
		v.Features = &machine.FeaturesInfo{Rbac: true}
	}
	return &machine.VersionResponse{Messages: []*machine.Version{v}}, nil
}

// Hostname implements MachineService.
func (s *machineService) Hostname(context.Context, *emptypb.Empty) (*machine.HostnameResponse, error) {
	s.boot.mu.Lock()
	defer s.boot.mu.Unlock()
	return &machine.HostnameResponse{Messages: []*machine.Hostname{{Hostname: s.boot.hostname}}}, nil
}

// Events implements MachineService.
func (s *machineService) Events(in *machine.EventsRequest, srv machine.MachineService_EventsServer) error {
	return s.boot.ring.Watch(srv.Context(), in, srv.Send)
}

// Dmesg implements MachineService.
func (s *machineService) Dmesg(in *machine.DmesgRequest, srv machine.MachineService_DmesgServer) error {
	return s.boot.kernelLog.read(srv.Context(), in.GetFollow(), in.GetTail(), func(line string) error {
		return srv.Send(&common.Data{Bytes: []byte(line)})
	})
}

// checkInspector is how Talos finds the containers of a namespace, with its refusals.
func checkInspector(namespace string, driver common.ContainerDriver) error {
	if namespace == "" {
		return status.Error(codes.InvalidArgument, "namespace can't be empty")
	}
	switch driver {
	case common.ContainerDriver_CRI:
		if namespace != constants.K8sContainerdNamespace {
			return errors.New("CRI inspector is supported only for K8s namespace")
		}
	case common.ContainerDriver_CONTAINERD:
	default:
		return status.Errorf(codes.InvalidArgument, "unsupported driver %q", driver)
	}
	return nil
}

// Logs implements MachineService: each service of the node has a log of its state changes.
func (s *machineService) Logs(in *machine.LogsRequest, srv machine.MachineService_LogsServer) error {
	if in.GetNamespace() != constants.SystemContainerdNamespace && in.GetId() != "kubelet" {
		if err := checkInspector(in.GetNamespace(), in.GetDriver()); err != nil {
			return err
		}
		return fmt.Errorf("container %q not found", in.GetId())
	}
	s.boot.mu.Lock()
	service, known := s.boot.services[in.GetId()]
	s.boot.mu.Unlock()
	if !known {
		return fmt.Errorf("log \"%s\" was not registered", in.GetId())
	}
	events := service.events
	if tail := int(in.GetTailLines()); in.GetTailLines() >= 0 && tail < len(events) {
		events = events[len(events)-tail:]
	}
	for _, e := range events {
		line := fmt.Sprintf("%s service[%s](%s): %s\n", e.GetTs().AsTime().Format(time.RFC3339), in.GetId(), e.GetState(), e.GetMsg())
		if err := srv.Send(&common.Data{Bytes: []byte(line)}); err != nil {
			return err
		}
	}
	if in.GetFollow() {
		<-srv.Context().Done()
	}
	return nil
}

// LogsContainers implements MachineService.
func (s *machineService) LogsContainers(context.Context, *emptypb.Empty) (*machine.LogsContainersResponse, error) {
	var ids []string
	for _, service := range s.boot.serviceList() {
		ids = append(ids, service.GetId())
	}
	return &machine.LogsContainersResponse{Messages: []*machine.LogsContainer{{Ids: ids}}}, nil
}

// Containers implements MachineService; no containers run here.
func (s *machineService) Containers(_ context.Context, in *machine.ContainersRequest) (*machine.ContainersResponse, error) {
	if err := checkInspector(in.GetNamespace(), in.GetDriver()); err != nil {
		return nil, err
	}
	return &machine.ContainersResponse{Messages: []*machine.Container{{}}}, nil
}

// Stats implements MachineService.
func (s *machineService) Stats(_ context.Context, in *machine.StatsRequest) (*machine.StatsResponse, error) {
	if err := checkInspector(in.GetNamespace(), in.GetDriver()); err != nil {
		return nil, err
	}
	return &machine.StatsResponse{Messages: []*machine.Stats{{}}}, nil
}

// Restart implements MachineService.
func (s *machineService) Restart(_ context.Context, in *machine.RestartRequest) (*machine.RestartResponse, error) {
	if err := checkInspector(in.GetNamespace(), in.GetDriver()); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("container %q not found", in.GetId())
}

// Memory implements MachineService; the unit is KiB.
func (s *machineService) Memory(context.Context, *emptypb.Empty) (*machine.MemoryResponse, error) {
	total := uint64(s.boot.node.machine().Memory) >> 10
	return &machine.MemoryResponse{Messages: []*machine.Memory{{Meminfo: &machine.MemInfo{
		Memtotal: total, Memfree: total / 2, Memavailable: total / 4 * 3, Cached: total / 8,
	}}}}, nil
}

// CPUInfo implements MachineService.
func (s *machineService) CPUInfo(context.Context, *emptypb.Empty) (*machine.CPUInfoResponse, error) {
	info := &machine.CPUsInfo{}
	cpus := s.boot.node.machine().CPUs
	for i := range cpus {
		info.CpuInfo = append(info.CpuInfo, &machine.CPUInfo{
			Processor: uint32(i), VendorId: "Hollow", ModelName: "Hollow CPU @ 2.60GHz", CpuMhz: 2600, CoreId: fmt.Sprint(i), CpuCores: uint32(cpus),
		})
	}
	return &machine.CPUInfoResponse{Messages: []*machine.CPUsInfo{info}}, nil
}

// CPUFreqStats implements MachineService.
func (s *machineService) CPUFreqStats(context.Context, *emptypb.Empty) (*machine.CPUFreqStatsResponse, error) {
	return &machine.CPUFreqStatsResponse{Messages: []*machine.CPUsFreqStats{{}}}, nil
}

// LoadAvg implements MachineService.
func (s *machineService) LoadAvg(context.Context, *emptypb.Empty) (*machine.LoadAvgResponse, error) {
	return &machine.LoadAvgResponse{Messages: []*machine.LoadAvg{{Load1: 0.1, Load5: 0.1, Load15: 0.1}}}, nil
}

// SystemStat implements MachineService.
func (s *machineService) SystemStat(context.Context, *emptypb.Empty) (*machine.SystemStatResponse, error) {
	return &machine.SystemStatResponse{Messages: []*machine.SystemStat{{BootTime: uint64(s.boot.started.Unix()), CpuTotal: &machine.CPUStat{}}}}, nil
}

// DiskStats implements MachineService.
func (s *machineService) DiskStats(context.Context, *emptypb.Empty) (*machine.DiskStatsResponse, error) {
	stats := &machine.DiskStats{Total: &machine.DiskStat{}}
	m := s.boot.node.machine()
	for _, d := range m.Disks {
		stats.Devices = append(stats.Devices, &machine.DiskStat{Name: facts.Disk(d).Metadata().ID()})
	}
	return &machine.DiskStatsResponse{Messages: []*machine.DiskStats{stats}}, nil
}

// NetworkDeviceStats implements MachineService.
func (s *machineService) NetworkDeviceStats(context.Context, *emptypb.Empty) (*machine.NetworkDeviceStatsResponse, error) {
	stats := &machine.NetworkDeviceStats{Total: &machine.NetDev{}, Devices: []*machine.NetDev{{Name: "lo"}}}
	m := s.boot.node.machine()
	for _, l := range m.Links {
		stats.Devices = append(stats.Devices, &machine.NetDev{Name: l.Name})
	}
	return &machine.NetworkDeviceStatsResponse{Messages: []*machine.NetworkDeviceStats{stats}}, nil
}

// Netstat implements MachineService.
func (s *machineService) Netstat(context.Context, *machine.NetstatRequest) (*machine.NetstatResponse, error) {
	address := s.boot.address().Addr().String()
	return &machine.NetstatResponse{Messages: []*machine.Netstat{{Connectrecord: []*machine.ConnectRecord{{
		L4Proto: "tcp", Localip: address, Localport: constants.ApidPort, Remoteip: "0.0.0.0", State: machine.ConnectRecord_LISTEN,
		Process: &machine.ConnectRecord_Process{},
	}}}}}, nil
}

// Processes implements MachineService.
func (s *machineService) Processes(context.Context, *emptypb.Empty) (*machine.ProcessesResponse, error) {
	out := &machine.Process{}
	s.boot.mu.Lock()
	defer s.boot.mu.Unlock()
	for _, service := range s.boot.visibleServices() {
		out.Processes = append(out.Processes, &machine.ProcessInfo{Pid: service.PID, State: "S", Command: service.ID, Executable: "/sbin/init", Args: service.ID})
	}
	return &machine.ProcessesResponse{Messages: []*machine.Process{out}}, nil
}

// Mounts implements MachineService.
func (s *machineService) Mounts(context.Context, *emptypb.Empty) (*machine.MountsResponse, error) {
	out := &machine.Mounts{Stats: []*machine.MountStat{
		{Filesystem: "tmpfs", MountedOn: "/"}, {Filesystem: "/dev/loop0", Size: 76 << 20, MountedOn: "/"}, {Filesystem: "devtmpfs", MountedOn: "/dev"},
	}}
	s.boot.mu.Lock()
	booted := s.boot.booted
	s.boot.mu.Unlock()
	if d, err := s.boot.currentSystemDisk(); err == nil && booted {
		out.Stats = append(out.Stats, &machine.MountStat{Filesystem: d.Device, Size: uint64(d.Size), Available: uint64(d.Size) / 2, MountedOn: "/var"})
	}
	return &machine.MountsResponse{Messages: []*machine.Mounts{out}}, nil
}

// PacketCapture implements MachineService; there are no packets to capture.
func (s *machineService) PacketCapture(in *machine.PacketCaptureRequest, _ machine.MachineService_PacketCaptureServer) error {
	m := s.boot.node.machine()
	for _, l := range m.Links {
		if l.Name == in.GetInterface() {
			return errors.New("error creating afpacket handle: operation not permitted")
		}
	}
	if in.GetInterface() == "lo" {
		return errors.New("error creating afpacket handle: operation not permitted")
	}
	return status.Errorf(codes.NotFound, "interface %q not found", in.GetInterface())
}
