// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// maintenanceServer is what answers in maintenance up to 1.12, where apid doesn't run yet: a configuration can be applied,
// disks be listed and wiped, resources be read. Nobody's role is checked but by the resources' own policy; what only a
// SideroLink peer may do is unimplemented for all others, and that is everybody here.
// Source: Talos 1.12, internal/app/maintenance/server.go; recorded in testdata/rpc.md.
type maintenanceServer struct {
	machine.UnimplementedMachineServiceServer
	service *machineService
}

// registerMaintenance adds the services of that server.
func (b *boot) registerMaintenance(server *grpc.Server) {
	machine.RegisterMachineServiceServer(server, &maintenanceServer{service: &machineService{boot: b}})
	storage.RegisterStorageServiceServer(server, &storageService{boot: b})
	v1alpha1.RegisterStateServer(server, maintenanceState{b.store.Server()})
}

// maintenanceState is the resources with a fault of that version.
type maintenanceState struct{ v1alpha1.StateServer }

// Watch implements v1alpha1.StateServer: a request without options made it trip.
func (s maintenanceState) Watch(in *v1alpha1.WatchRequest, srv v1alpha1.State_WatchServer) error {
	if in.GetOptions() == nil {
		return status.Error(codes.Internal, "runtime error: invalid memory address or nil pointer dereference")
	}
	return s.StateServer.Watch(in, srv)
}

var errMaintenance = status.Error(codes.Unimplemented, "API is not implemented in maintenance mode")

// ApplyConfiguration implements MachineService.
func (s *maintenanceServer) ApplyConfiguration(ctx context.Context, in *machine.ApplyConfigurationRequest) (*machine.ApplyConfigurationResponse, error) {
	return s.service.ApplyConfiguration(ctx, in)
}

// Version implements MachineService.
func (s *maintenanceServer) Version(context.Context, *emptypb.Empty) (*machine.VersionResponse, error) {
	return nil, errMaintenance
}

// Upgrade implements MachineService.
func (s *maintenanceServer) Upgrade(context.Context, *machine.UpgradeRequest) (*machine.UpgradeResponse, error) {
	return nil, errMaintenance
}

// Reset implements MachineService.
func (s *maintenanceServer) Reset(context.Context, *machine.ResetRequest) (*machine.ResetResponse, error) {
	return nil, errMaintenance
}

// MetaWrite implements MachineService.
func (s *maintenanceServer) MetaWrite(context.Context, *machine.MetaWriteRequest) (*machine.MetaWriteResponse, error) {
	return nil, errMaintenance
}

// MetaDelete implements MachineService.
func (s *maintenanceServer) MetaDelete(context.Context, *machine.MetaDeleteRequest) (*machine.MetaDeleteResponse, error) {
	return nil, errMaintenance
}

// GenerateClientConfiguration implements MachineService.
func (s *maintenanceServer) GenerateClientConfiguration(context.Context, *machine.GenerateClientConfigurationRequest) (*machine.GenerateClientConfigurationResponse, error) {
	return nil, status.Error(codes.Unimplemented, "client configuration (talosconfig) can't be generated in the maintenance mode")
}

// applyInMaintenance is that server's apply: it knows three modes, which all mean the same, tells neither the mode nor what
// it will do, and has words of its own for what it refuses.
func (b *boot) applyInMaintenance(ctx context.Context, in *machine.ApplyConfigurationRequest) (*machine.ApplyConfigurationResponse, error) {
	switch in.GetMode() {
	case applyTry, applyReboot, applyAuto:
	default:
		return nil, status.Errorf(codes.Unimplemented, "apply configuration --mode='%s' is not supported in maintenance mode",
			strings.ReplaceAll(strings.ToLower(in.GetMode().String()), "_", "-"))
	}
	cfg, err := b.parseConfig(in.GetData())
	if err != nil {
		return nil, fmt.Errorf("failed to parse config: %w", err)
	}
	warnings, err := b.validate(cfg)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "configuration validation failed: %s", err)
	}
	more, err := b.validateHere(ctx, cfg)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "runtime configuration validation failed: %s", err)
	}
	reply := &machine.ApplyConfiguration{Warnings: append(warnings, more...)}
	if in.GetDryRun() {
		reply.ModeDetails = "Dry run summary:\nNode is running in maintenance mode and does not have a config yet."
	} else if err := b.take(applyNoReboot, cfg); err != nil {
		return nil, err
	}
	return &machine.ApplyConfigurationResponse{Messages: []*machine.ApplyConfiguration{reply}}, nil
}
