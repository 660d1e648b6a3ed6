// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/sequence"
)

// Reset implements MachineService. What it checks at once is answered with plain errors, as Talos does.
func (s *machineService) Reset(ctx context.Context, in *machine.ResetRequest) (*machine.ResetResponse, error) {
	if err := s.boot.checkUserDisks(in); err != nil {
		return nil, err
	}
	labels, err := s.boot.checkPartitions(ctx, in)
	if err != nil {
		return nil, err
	}
	s.boot.did(Deed{What: DeedToldReset, Graceful: in.GetGraceful(), Disks: in.GetUserDisksToWipe()})
	actor := uuid.NewString()
	s.boot.kernelLog.printf("[talos] reset request received. actorID: %s", actor)
	s.boot.runSequence(actor, sequence.Reset, false, s.boot.resetPhases(in, labels))
	return &machine.ResetResponse{Messages: []*machine.Reset{{ActorId: actor}}}, nil
}

func (b *boot) checkUserDisks(in *machine.ResetRequest) error {
	if len(in.GetUserDisksToWipe()) == 0 {
		return nil
	}
	if in.GetMode() == machine.ResetRequest_SYSTEM_DISK {
		return errors.New("reset failed: invalid input, wipe mode SYSTEM_DISK doesn't support UserDisksToWipe parameter")
	}
	disks := map[string]fleet.Disk{}
	m := b.node.machine()
	for _, d := range m.Disks {
		disks[d.Device] = d
	}
	installed, err := b.installed()
	if err != nil {
		return err
	}
	for _, device := range in.GetUserDisksToWipe() {
		d, there := disks[device]
		switch {
		case !there:
			return fmt.Errorf("reset user disk failed: device %s wasn't found", device)
		case d.ReadOnly:
			return fmt.Errorf("reset user disk failed: device %s is readonly", device)
		case installed != nil && installed.Device == device:
			return fmt.Errorf("reset user disk failed: device %s is the system disk", device)
		}
	}
	return nil
}

// checkPartitions gives the labels to wipe; none were asked for means the whole disk.
func (b *boot) checkPartitions(ctx context.Context, in *machine.ResetRequest) ([]string, error) {
	if len(in.GetSystemPartitionsToWipe()) == 0 {
		return nil, nil
	}
	if in.GetMode() == machine.ResetRequest_USER_DISKS {
		return nil, errors.New("reset failed: invalid input, wipe mode USER_DISKS doesn't support SystemPartitionsToWipe parameter")
	}
	var labels []string
	for _, spec := range in.GetSystemPartitionsToWipe() {
		volume, err := safe.StateGetByID[*block.VolumeStatus](ctx, b.store.State(), spec.GetLabel())
		if err != nil {
			return nil, fmt.Errorf("failed to get volume status with label %q: %w", spec.GetLabel(), err)
		}
		if volume.TypedSpec().Location == "" {
			return nil, fmt.Errorf("failed to reset: volume %q is not located", spec.GetLabel())
		}
		if spec.GetWipe() {
			labels = append(labels, spec.GetLabel())
		}
	}
	return labels, nil
}

func (b *boot) resetPhases(in *machine.ResetRequest, labels []string) func() []sequence.Phase {
	return func() []sequence.Phase {
		var list []sequence.Phase
		if in.GetGraceful() {
			list = append(list, phase("drain", nothing("cordonAndDrainNode")), phase("cleanup", nothing("removeAllPods")))
		} else {
			list = append(list, phase("cleanup", nothing("stopAllPods")))
		}
		list = append(list, phase("dbus", nothing("stopDBus")))
		if in.GetGraceful() && b.isControlPlane() {
			list = append(list, phase("leave", task("leaveEtcd", b.leaveEtcd)))
		}
		list = append(list, phase("preReset", task("sendResetSignal", b.sendResetSignal)))
		list = append(list, b.stopPhases(len(labels) > 0)...)
		list = append(list, phase("forceCleanup", nothing("forceCleanup")))
		if in.GetMode() != machine.ResetRequest_USER_DISKS {
			if len(labels) == 0 {
				list = append(list, phase("reset", task("resetSystemDisk", b.resetSystemDisk)))
			} else {
				list = append(list, phase("resetSpec", task("resetSystemDiskSpec", func(context.Context) error { return b.resetPartitions(labels) })))
			}
		}
		if len(in.GetUserDisksToWipe()) > 0 && in.GetMode() != machine.ResetRequest_SYSTEM_DISK {
			list = append(list, phase("resetUserDisks", task("resetUserDisks", func(context.Context) error {
				return b.wipeUserDisks(in.GetUserDisksToWipe())
			})))
		}
		if in.GetReboot() {
			return append(list, phase("reboot", task("reboot", b.reboot)))
		}
		return append(list, phase("shutdown", task("shutdown", b.shutdown)))
	}
}

// leaveEtcd removes the member; that it can't be removed is fatal. Without a running etcd there is nothing to leave.
func (b *boot) leaveEtcd(ctx context.Context) error {
	b.mu.Lock()
	rt, etcd := b.runtime, b.services["etcd"]
	b.mu.Unlock()
	if rt == nil || !etcd.running {
		return nil
	}
	return rt.EtcdLeaveCluster(ctx)
}

func (b *boot) sendResetSignal(ctx context.Context) error {
	return b.store.Put(ctx, "runtime.Reset", runtime.NewMachineResetSignal())
}

func (b *boot) resetSystemDisk(context.Context) error {
	b.mu.Lock()
	b.meta = map[uint8]string{}
	b.mu.Unlock()
	return b.node.folder.Wipe()
}

func (b *boot) resetPartitions(labels []string) error {
	for _, label := range labels {
		if err := b.node.folder.WipePartition(label); err != nil {
			return fmt.Errorf("reset partition %s: %w", label, err)
		}
	}
	return nil
}

// wipeUserDisks takes the signatures off the disks.
func (b *boot) wipeUserDisks(devices []string) error {
	for _, device := range devices {
		if err := b.node.setSignature(path.Base(device), ""); err != nil {
			return err
		}
	}
	return nil
}
