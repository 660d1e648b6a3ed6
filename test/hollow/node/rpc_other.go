// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/inspect"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"maesh.dev/ichor/test/hollow/access"
	"maesh.dev/ichor/test/hollow/disk"
)

type storageService struct {
	storage.UnimplementedStorageServiceServer
	boot *boot
}

// Disks implements StorageService.
func (s *storageService) Disks(ctx context.Context, _ *emptypb.Empty) (*storage.DisksResponse, error) {
	disks, err := safe.StateListAll[*block.Disk](ctx, s.boot.store.State())
	if err != nil {
		return nil, err
	}
	installed, err := s.boot.installed()
	if err != nil {
		return nil, err
	}
	out := &storage.Disks{}
	for d := range disks.All() {
		spec := d.TypedSpec()
		out.Disks = append(out.Disks, &storage.Disk{
			DeviceName: spec.DevPath, Model: spec.Model, Size: spec.Size, Serial: spec.Serial, Modalias: spec.Modalias, Wwid: spec.WWID, Uuid: spec.UUID,
			Type: diskType(spec), BusPath: spec.BusPath, SystemDisk: installed != nil && installed.Device == spec.DevPath,
			Subsystem: spec.SubSystem, Readonly: spec.Readonly,
		})
	}
	return &storage.DisksResponse{Messages: []*storage.Disks{out}}, nil
}

func diskType(d *block.DiskSpec) storage.Disk_DiskType {
	switch {
	case d.CDROM:
		return storage.Disk_CD
	case d.Transport == "nvme":
		return storage.Disk_NVME
	case d.Transport == "mmc":
		return storage.Disk_SD
	case d.Rotational:
		return storage.Disk_HDD
	case d.Transport != "":
		return storage.Disk_SSD
	}
	return storage.Disk_UNKNOWN
}

// BlockDeviceWipe implements StorageService; a reader may do it as long as there is no configuration.
func (s *storageService) BlockDeviceWipe(ctx context.Context, in *storage.BlockDeviceWipeRequest) (*storage.BlockDeviceWipeResponse, error) {
	if s.boot.configured() && !access.Roles(ctx).Includes(role.Admin) {
		return nil, access.ErrNotAuthorized
	}
	for _, d := range in.GetDevices() {
		if err := s.checkWipe(ctx, d); err != nil {
			return nil, err
		}
	}
	for _, d := range in.GetDevices() {
		if err := s.boot.node.setSignature(d.GetDevice(), ""); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	s.boot.refresh()
	return &storage.BlockDeviceWipeResponse{Messages: []*storage.BlockDeviceWipe{{}}}, nil
}

func (s *storageService) checkWipe(ctx context.Context, d *storage.BlockDeviceWipeDescriptor) error {
	name := d.GetDevice()
	found, err := safe.StateGetByID[*block.Disk](ctx, s.boot.store.State(), name)
	if err != nil {
		return status.Errorf(codes.NotFound, "blockdevice %q not found", name)
	}
	if found.TypedSpec().Readonly {
		return status.Errorf(codes.FailedPrecondition, "blockdevice %q is read-only", name)
	}
	if found.TypedSpec().CDROM {
		return status.Errorf(codes.FailedPrecondition, "blockdevice %q is a CD-ROM", name)
	}
	if d.GetSkipVolumeCheck() {
		return nil
	}
	volumes, err := safe.StateListAll[*block.VolumeStatus](ctx, s.boot.store.State())
	if err != nil {
		return err
	}
	for v := range volumes.All() {
		if path.Base(v.TypedSpec().ParentLocation) == name || path.Base(v.TypedSpec().Location) == name {
			return status.Errorf(codes.FailedPrecondition, "blockdevice %q is in use by volume %q", name, v.Metadata().ID())
		}
	}
	return nil
}

// setSignature changes what was left on a disk that is not the system disk; on that one it is the installation that goes.
func (n *Node) setSignature(device, signature string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	next := n.hardware
	next.Machine.Disks = append(next.Machine.Disks[:0:0], next.Machine.Disks...)
	for i := range next.Machine.Disks {
		if path.Base(next.Machine.Disks[i].Device) == device {
			next.Machine.Disks[i].Signature = signature
		}
	}
	n.hardware = next
	if err := disk.WriteHardware(n.folder, n.hardware); err != nil {
		return err
	}
	installed, err := n.folder.Installed()
	if err != nil || installed == nil || path.Base(installed.Device) != device {
		return err
	}
	return n.folder.Wipe()
}

type timeService struct {
	timeapi.UnimplementedTimeServiceServer
	boot *boot
}

// Time implements TimeService.
func (s *timeService) Time(ctx context.Context, _ *emptypb.Empty) (*timeapi.TimeResponse, error) {
	server := constants.DefaultNTPServer
	if cfg := s.boot.activeConfig(); cfg != nil && cfg.NetworkTimeSyncConfig() != nil && len(cfg.NetworkTimeSyncConfig().Servers()) > 0 {
		server = cfg.NetworkTimeSyncConfig().Servers()[0]
	}
	return s.TimeCheck(ctx, &timeapi.TimeRequest{Server: server})
}

// TimeCheck implements TimeService. No time server is asked: the answer is the machine's own clock.
func (s *timeService) TimeCheck(_ context.Context, in *timeapi.TimeRequest) (*timeapi.TimeResponse, error) {
	if in.GetServer() == "" {
		return nil, status.Error(codes.InvalidArgument, "ntp server is required")
	}
	now := timestamppb.New(time.Now())
	return &timeapi.TimeResponse{Messages: []*timeapi.Time{{Server: in.GetServer(), Localtime: now, Remotetime: now}}}, nil
}

type clusterService struct {
	cluster.UnimplementedClusterServiceServer
	boot *boot
}

// HealthCheck implements ClusterService with what this node knows of itself.
func (s *clusterService) HealthCheck(_ *cluster.HealthCheckRequest, srv cluster.ClusterService_HealthCheckServer) error {
	if err := s.boot.needControlPlane("cluster health check"); err != nil {
		return err
	}
	text := fmt.Sprintf("discovered nodes: [%q]", s.boot.address().Addr().String())
	return srv.Send(&cluster.HealthCheckProgress{Message: text})
}

type inspectService struct {
	inspect.UnimplementedInspectServiceServer
}

// ControllerRuntimeDependencies implements InspectService; no controllers run here.
func (s *inspectService) ControllerRuntimeDependencies(context.Context, *emptypb.Empty) (*inspect.ControllerRuntimeDependenciesResponse, error) {
	return &inspect.ControllerRuntimeDependenciesResponse{Messages: []*inspect.ControllerRuntimeDependency{{}}}, nil
}

type debugService struct {
	machine.UnimplementedDebugServiceServer
}

// ContainerRun implements DebugService; no image is ever there to run.
func (s *debugService) ContainerRun(srv grpc.BidiStreamingServer[machine.DebugContainerRunRequest, machine.DebugContainerRunResponse]) error {
	first, err := srv.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return status.Errorf(codes.InvalidArgument, "failed to receive spec: %v", err)
	}
	spec := first.GetSpec()
	if spec == nil {
		return status.Error(codes.InvalidArgument, "expected debug container spec")
	}
	if spec.GetProfile() != machine.DebugContainerRunRequestSpec_PROFILE_PRIVILEGED {
		return status.Errorf(codes.InvalidArgument, "unsupported debug container profile: %s", spec.GetProfile())
	}
	return status.Errorf(codes.NotFound, "image %s not found", spec.GetImageName())
}
