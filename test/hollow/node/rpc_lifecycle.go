// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/meta"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"maesh.dev/ichor/test/hollow/sequence"
)

// The calls here return before anything happened; a refusal by the sequence lock is an event only.

// Reboot implements MachineService.
func (s *machineService) Reboot(_ context.Context, in *machine.RebootRequest) (*machine.RebootResponse, error) {
	actor := uuid.NewString()
	s.boot.kernelLog.printf("[talos] reboot via API received. actor id: %s", actor)
	s.boot.did(Deed{What: DeedToldReboot})
	s.boot.runSequence(actor, sequence.Reboot, false, s.boot.rebootPhases(in))
	return &machine.RebootResponse{Messages: []*machine.Reboot{{ActorId: actor}}}, nil
}

// Shutdown implements MachineService.
func (s *machineService) Shutdown(_ context.Context, in *machine.ShutdownRequest) (*machine.ShutdownResponse, error) {
	actor := uuid.NewString()
	s.boot.kernelLog.printf("[talos] shutdown via API received. actor id: %s", actor)
	s.boot.did(Deed{What: DeedToldShutdown})
	s.boot.runSequence(actor, sequence.Shutdown, true, s.boot.shutdownPhases(in))
	return &machine.ShutdownResponse{Messages: []*machine.Shutdown{{ActorId: actor}}}, nil
}

// Rollback implements MachineService: it makes the bootloader start the previous system, and reboots.
func (s *machineService) Rollback(context.Context, *machine.RollbackRequest) (*machine.RollbackResponse, error) {
	installed, err := s.boot.installed()
	if err != nil {
		return nil, err
	}
	if installed == nil {
		return nil, status.Error(codes.FailedPrecondition, "system disk not found")
	}
	if err := s.boot.revert(); err != nil {
		return nil, fmt.Errorf("cannot rollback to the fallback: %w", err)
	}
	s.boot.runSequence("", sequence.Reboot, true, s.boot.rebootPhases(nil))
	return &machine.RollbackResponse{Messages: []*machine.Rollback{{}}}, nil
}

// Bootstrap implements MachineService.
func (s *machineService) Bootstrap(ctx context.Context, in *machine.BootstrapRequest) (*machine.BootstrapResponse, error) {
	s.boot.mu.Lock()
	cri := s.boot.services["cri"].running
	rt := s.boot.runtime
	s.boot.mu.Unlock()
	if !cri {
		return nil, status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	}
	if err := s.boot.needControlPlane("bootstrap"); err != nil {
		return nil, err
	}
	if rt == nil {
		return nil, status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	}
	if err := rt.Bootstrap(ctx, in); err != nil {
		return nil, err
	}
	s.boot.node.bootstraps.Add(1)
	return &machine.BootstrapResponse{Messages: []*machine.Bootstrap{{}}}, nil
}

// Upgrade implements MachineService, the older way: the node checks etcd, installs and reboots by itself.
func (s *machineService) Upgrade(ctx context.Context, in *machine.UpgradeRequest) (*machine.UpgradeResponse, error) {
	b := s.boot
	installed, err := b.installed()
	if err != nil {
		return nil, err
	}
	if installed == nil {
		return nil, status.Error(codes.FailedPrecondition, "Talos is not installed")
	}
	if err := b.pullInstaller(ctx, in.GetImage()); err != nil {
		return nil, fmt.Errorf("error validating installer image %q: %w", in.GetImage(), err)
	}
	if b.isControlPlane() && !in.GetForce() && !in.GetPreserve() {
		if err := b.etcdAllowsUpgrade(ctx); err != nil {
			return nil, fmt.Errorf("error validating etcd for upgrade: %w", err)
		}
	}
	actor := uuid.NewString()
	b.did(Deed{What: DeedToldUpgrade, Image: in.GetImage()})
	switch {
	case !b.configured():
		b.runSequence(actor, sequence.MaintenanceUpgrade, false, b.maintenanceUpgradePhases(in))
	case in.GetStage():
		for tag, value := range map[uint8]string{meta.StagedUpgradeImageRef: in.GetImage(), meta.StagedUpgradeInstallOptions: "{}"} {
			if err := b.setMeta(tag, value); err != nil {
				return nil, fmt.Errorf("error adding staged upgrade image ref tag: %w", err)
			}
		}
		b.runSequence(actor, sequence.StageUpgrade, false, b.stageUpgradePhases(in))
	default:
		b.runSequence(actor, sequence.Upgrade, false, b.upgradePhases(in))
	}
	return &machine.UpgradeResponse{Messages: []*machine.Upgrade{{Ack: "Upgrade request received", ActorId: actor}}}, nil
}

// pullInstaller takes the time of a pull; an image that can't be there is an error.
func (b *boot) pullInstaller(ctx context.Context, image string) error {
	if image == "" {
		return errors.New("invalid image reference")
	}
	if err := work(ctx, time.Duration(b.node.machine().Timings.Pull)); err != nil {
		return err
	}
	if _, err := slotOf(image); err != nil {
		return fmt.Errorf("failed to pull image: %s: not found", image)
	}
	return nil
}

// etcdAllowsUpgrade is the check of the older upgrade (Talos: internal/pkg/etcd/etcd.go, ValidateForUpgrade).
func (b *boot) etcdAllowsUpgrade(ctx context.Context) error {
	rt, err := b.etcdRuntime()
	if err != nil {
		return err
	}
	members, err := rt.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{})
	if err != nil {
		return err
	}
	if len(members.GetMembers()) == 2 {
		return errors.New("etcd member is not healthy: etcd cluster with 2 members can't be upgraded without losing quorum")
	}
	for _, m := range members.GetMembers() {
		if m.GetHostname() == "" {
			return fmt.Errorf("etcd member %d is not started, all members must be running to perform an upgrade", m.GetId())
		}
	}
	return nil
}

func (b *boot) upgradePhases(in *machine.UpgradeRequest) func() []sequence.Phase {
	return func() []sequence.Phase {
		list := []sequence.Phase{phase("drain", nothing("cordonAndDrainNode")), phase("cleanup", nothing("stopAllPods")), phase("dbus", nothing("stopDBus"))}
		list = append(list,
			phase("stopServices", task("stopServicesEphemeral", func(ctx context.Context) error { b.stopWorkload(ctx); return nil })),
			phase("unmount", nothing("unmountPodMounts")),
			phase("unmountBind", nothing("unmountSystemDiskBindMounts")),
			phase("unmountSystem", nothing("unmountEphemeralPartition")),
			phase("volumeFinalize", nothing("teardownVolumeLifecycle")))
		return append(list, b.installAndReboot(in)...)
	}
}

func (b *boot) maintenanceUpgradePhases(in *machine.UpgradeRequest) func() []sequence.Phase {
	return func() []sequence.Phase { return b.installAndReboot(in) }
}

func (b *boot) installAndReboot(in *machine.UpgradeRequest) []sequence.Phase {
	list := []sequence.Phase{
		phase("upgrade", task("upgrade", func(ctx context.Context) error { return b.upgradeSystem(ctx, in.GetImage()) })),
		phase("meta", nothing("reloadMeta")),
	}
	if in.GetRebootMode() == machine.UpgradeRequest_DEFAULT {
		list = append(list, phase("kexec", nothing("kexecPrepare")))
	}
	return append(list, phase("stopEverything", task("stopAllServices", b.stopAllServices)), phase("reboot", task("reboot", b.reboot)))
}

func (b *boot) stageUpgradePhases(in *machine.UpgradeRequest) func() []sequence.Phase {
	return func() []sequence.Phase {
		list := []sequence.Phase{phase("cleanup", nothing("stopAllPods")), phase("dbus", nothing("stopDBus"))}
		list = append(list, b.stopPhases(in.GetRebootMode() == machine.UpgradeRequest_DEFAULT)...)
		return append(list, phase("reboot", task("reboot", b.reboot)))
	}
}

// MetaWrite implements MachineService.
func (s *machineService) MetaWrite(_ context.Context, in *machine.MetaWriteRequest) (*machine.MetaWriteResponse, error) {
	if in.GetKey() > 0xff {
		return nil, status.Error(codes.InvalidArgument, "key must be a uint8")
	}
	if len(in.GetValue()) > maxMetaValue {
		return nil, status.Error(codes.ResourceExhausted, "meta write failed")
	}
	if err := s.boot.setMeta(uint8(in.GetKey()), string(in.GetValue())); err != nil {
		return nil, err
	}
	return &machine.MetaWriteResponse{Messages: []*machine.MetaWrite{{}}}, nil
}

// maxMetaValue is a little less than META's 256 KiB of values.
const maxMetaValue = 250 << 10

// MetaDelete implements MachineService.
func (s *machineService) MetaDelete(_ context.Context, in *machine.MetaDeleteRequest) (*machine.MetaDeleteResponse, error) {
	if in.GetKey() > 0xff {
		return nil, status.Error(codes.InvalidArgument, "key must be a uint8")
	}
	if _, there := s.boot.metaValue(uint8(in.GetKey())); !there {
		return nil, status.Error(codes.NotFound, "meta key not found")
	}
	if err := s.boot.dropMeta(uint8(in.GetKey())); err != nil {
		return nil, err
	}
	return &machine.MetaDeleteResponse{Messages: []*machine.MetaDelete{{}}}, nil
}

// apiStartable tells whether the API may start or restart a service, and stop it.
func apiStartable(id string) (start, stop bool) {
	extension := strings.HasPrefix(id, "ext-")
	return id == "kubelet" || extension, extension
}

func (b *boot) serviceCall(id, operation string, allowed bool) error {
	b.mu.Lock()
	_, known := b.services[id]
	b.mu.Unlock()
	if !known {
		return fmt.Errorf("service %q not defined", id)
	}
	if !allowed {
		return fmt.Errorf("service %q doesn't support %s operation via API", id, operation)
	}
	return nil
}

// ServiceStart implements MachineService.
func (s *machineService) ServiceStart(_ context.Context, in *machine.ServiceStartRequest) (*machine.ServiceStartResponse, error) {
	start, _ := apiStartable(in.GetId())
	if err := s.boot.serviceCall(in.GetId(), "start", start); err != nil {
		return nil, err
	}
	return &machine.ServiceStartResponse{Messages: []*machine.ServiceStart{{Resp: fmt.Sprintf("Service %q started", in.GetId())}}}, nil
}

// ServiceStop implements MachineService.
func (s *machineService) ServiceStop(_ context.Context, in *machine.ServiceStopRequest) (*machine.ServiceStopResponse, error) {
	_, stop := apiStartable(in.GetId())
	if err := s.boot.serviceCall(in.GetId(), "stop", stop); err != nil {
		return nil, err
	}
	return &machine.ServiceStopResponse{Messages: []*machine.ServiceStop{{Resp: fmt.Sprintf("Service %q stopped", in.GetId())}}}, nil
}

// ServiceRestart implements MachineService.
func (s *machineService) ServiceRestart(_ context.Context, in *machine.ServiceRestartRequest) (*machine.ServiceRestartResponse, error) {
	start, _ := apiStartable(in.GetId())
	if err := s.boot.serviceCall(in.GetId(), "restart", start); err != nil {
		return nil, err
	}
	return &machine.ServiceRestartResponse{Messages: []*machine.ServiceRestart{{Resp: fmt.Sprintf("Service %q restarted", in.GetId())}}}, nil
}

// ServiceList implements MachineService.
func (s *machineService) ServiceList(context.Context, *emptypb.Empty) (*machine.ServiceListResponse, error) {
	return &machine.ServiceListResponse{Messages: []*machine.ServiceList{{Services: s.boot.serviceList()}}}, nil
}
