// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// leaveTimeout, leaveEvery and memberIDTimeout are Talos' own (internal/pkg/etcd).
	leaveTimeout    = 5 * time.Minute
	leaveEvery      = 10 * time.Second
	memberIDTimeout = 3 * time.Minute

	// maxSnapshotBytes bounds an uploaded snapshot; etcd's own quota ends at 8 GiB.
	maxSnapshotBytes = 8 << 30
)

// The error texts below are Talos' own, for clients match on them.

// MemberList is MachineService.EtcdMemberList; local asks this member instead of any of the cluster.
func (m *Member) MemberList(ctx context.Context, local bool) (*machine.EtcdMembers, error) {
	dial := m.dialCluster
	if local {
		dial = m.dialLocal
	}

	client, err := dial(ctx)
	if err != nil {
		return nil, err
	}

	defer client.Close() //nolint:errcheck // reading only

	list, err := client.MemberList(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return nil, err
	}

	members := &machine.EtcdMembers{}

	for _, member := range list.Members {
		members.LegacyMembers = append(members.LegacyMembers, member.GetName())
		members.Members = append(members.Members, &machine.EtcdMember{
			Id: member.GetID(), Hostname: member.GetName(), PeerUrls: member.GetPeerURLs(),
			ClientUrls: member.GetClientURLs(), IsLearner: member.GetIsLearner(),
		})
	}

	return members, nil
}

// RemoveMember is MachineService.EtcdRemoveMemberByID.
func (m *Member) RemoveMember(ctx context.Context, id uint64) error {
	client, err := m.dialCluster(ctx)
	if err != nil {
		return fmt.Errorf("failed to create etcd client: %w", err)
	}

	defer client.Close() //nolint:errcheck // the call was answered

	err = remove(clientv3.WithRequireLeader(ctx), client, id)
	if errors.Is(err, rpctypes.ErrMemberNotFound) {
		return status.Error(codes.NotFound, err.Error())
	}

	if err != nil {
		return fmt.Errorf("failed to remove member: %w", err)
	}

	return nil
}

func remove(ctx context.Context, client *clientv3.Client, id uint64) error {
	if _, err := client.MemberRemove(ctx, id); err != nil {
		return fmt.Errorf("failed to remove member %d: %w", id, err)
	}

	return nil
}

// Leave is MachineService.EtcdLeaveCluster: it removes this member, stops the service and deletes the data.
func (m *Member) Leave(ctx context.Context) error {
	client, err := m.dialCluster(ctx)
	if err != nil {
		return fmt.Errorf("failed to create etcd client: %w", err)
	}

	defer client.Close() //nolint:errcheck // the call was answered

	if err = m.removeSelf(clientv3.WithRequireLeader(ctx), client); err != nil {
		return fmt.Errorf("failed to leave cluster: %w", err)
	}

	m.Stop(ctx)

	if err = os.RemoveAll(m.options.DataDir); err != nil {
		return fmt.Errorf("failed to leave cluster: failed to remove %s: %w", m.options.DataDir, err)
	}

	return nil
}

// removeSelf tries again while the cluster is busy or this member has lost sight of the others; a refusal for the sake
// of the quorum is final.
func (m *Member) removeSelf(ctx context.Context, client *clientv3.Client) error {
	id, err := m.localID(ctx)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()

	ticker := time.NewTicker(leaveEvery)
	defer ticker.Stop()

	for {
		err = remove(ctx, client, id)

		switch {
		case err == nil, errors.Is(err, rpctypes.ErrMemberNotFound):
			return nil
		case errors.Is(err, rpctypes.ErrUnhealthy), errors.Is(err, rpctypes.ErrStopped):
		default:
			return err
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// localID waits until this member's id is known.
func (m *Member) localID(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, memberIDTimeout)
	defer cancel()

	ticker := time.NewTicker(healthEvery / 4)
	defer ticker.Stop()

	for {
		if id := m.State().MemberID; id != 0 {
			return id, nil
		}

		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("failed to get local etcd member ID: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}

// ForfeitLeadership is MachineService.EtcdForfeitLeadership: it returns the new leader's name, empty when this member
// doesn't lead.
func (m *Member) ForfeitLeadership(ctx context.Context) (string, error) {
	id, err := m.localID(ctx)
	if err != nil {
		return "", err
	}

	client, err := m.dialLocal(ctx)
	if err != nil {
		return "", fmt.Errorf("failed to create etcd client: %w", err)
	}

	defer client.Close() //nolint:errcheck // the call was answered

	name, err := forfeit(clientv3.WithRequireLeader(ctx), client, id)
	if err != nil {
		return "", fmt.Errorf("failed to forfeit leadership: %w", err)
	}

	return name, nil
}

func forfeit(ctx context.Context, client *clientv3.Client, id uint64) (string, error) {
	list, err := client.MemberList(ctx)
	if err != nil {
		return "", fmt.Errorf("failed to list etcd members: %w", err)
	}

	if len(list.Members) == 1 {
		return "", errors.New("cannot forfeit leadership, only one member")
	}

	local, err := client.Status(ctx, client.Endpoints()[0])
	if err != nil {
		return "", err
	}

	if local.Leader != id {
		return "", nil
	}

	for _, member := range list.Members {
		if member.ID == id {
			continue
		}

		_, err = client.MoveLeader(ctx, member.ID)
		if errors.Is(err, rpctypes.ErrNotLeader) {
			return "", nil
		}

		if err != nil {
			return "", err
		}

		return member.Name, nil
	}

	return "", nil
}

// Status is MachineService.EtcdStatus of this member.
func (m *Member) Status(ctx context.Context) (*machine.EtcdMemberStatus, error) {
	client, err := m.dialLocal(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", err)
	}

	defer client.Close() //nolint:errcheck // reading only

	local, err := client.Status(ctx, client.Endpoints()[0])
	if err != nil {
		return nil, fmt.Errorf("failed to query etcd status: %w", err)
	}

	return &machine.EtcdMemberStatus{
		MemberId: local.Header.GetMemberId(), ProtocolVersion: local.Version, DbSize: local.DbSize,
		DbSizeInUse: local.DbSizeInUse, Leader: local.Leader, RaftIndex: local.RaftIndex, RaftTerm: local.RaftTerm,
		RaftAppliedIndex: local.RaftAppliedIndex, StorageVersion: local.StorageVersion, Errors: local.Errors,
		IsLearner: local.IsLearner,
	}, nil
}

// AlarmList is MachineService.EtcdAlarmList.
func (m *Member) AlarmList(ctx context.Context) ([]*machine.EtcdMemberAlarm, error) {
	client, err := m.dialLocal(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", err)
	}

	defer client.Close() //nolint:errcheck // reading only

	list, err := client.AlarmList(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to list etcd alarms: %w", err)
	}

	return alarms(list.Alarms), nil
}

// AlarmDisarm is MachineService.EtcdAlarmDisarm.
func (m *Member) AlarmDisarm(ctx context.Context) ([]*machine.EtcdMemberAlarm, error) {
	client, err := m.dialLocal(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", err)
	}

	defer client.Close() //nolint:errcheck // the call was answered

	list, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	if err != nil {
		return nil, fmt.Errorf("failed to disarm etcd alarm: %w", err)
	}

	return alarms(list.Alarms), nil
}

func alarms(list []*etcdserverpb.AlarmMember) []*machine.EtcdMemberAlarm {
	kinds := map[etcdserverpb.AlarmType]machine.EtcdMemberAlarm_AlarmType{
		etcdserverpb.AlarmType_NOSPACE: machine.EtcdMemberAlarm_NOSPACE,
		etcdserverpb.AlarmType_CORRUPT: machine.EtcdMemberAlarm_CORRUPT,
	}

	result := make([]*machine.EtcdMemberAlarm, len(list))
	for i, alarm := range list {
		result[i] = &machine.EtcdMemberAlarm{MemberId: alarm.GetMemberID(), Alarm: kinds[alarm.GetAlarm()]}
	}

	return result
}

// Defragment is MachineService.EtcdDefragment of this member.
func (m *Member) Defragment(ctx context.Context) error {
	client, err := m.dialLocal(ctx)
	if err != nil {
		return fmt.Errorf("failed to create etcd client: %w", err)
	}

	defer client.Close() //nolint:errcheck // the call was answered

	if _, err = client.Defragment(ctx, client.Endpoints()[0]); err != nil {
		return fmt.Errorf("failed to defragment etcd: %w", err)
	}

	return nil
}

// Snapshot writes a snapshot of this member.
func (m *Member) Snapshot(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	client, err := m.dialLocal(ctx)
	if err != nil {
		return fmt.Errorf("failed to create etcd client: %w", err)
	}

	defer client.Close() //nolint:errcheck // reading only

	response, err := client.SnapshotWithVersion(ctx)
	if err != nil {
		return fmt.Errorf("failed reading etcd snapshot: %w", err)
	}

	defer response.Snapshot.Close() //nolint:errcheck // reading only

	if _, err = io.Copy(w, response.Snapshot); err != nil {
		return fmt.Errorf("failed reading etcd snapshot: %w", err)
	}

	return nil
}

// Recover stores an uploaded snapshot for a later Bootstrap; a broken upload leaves nothing.
func (m *Member) Recover(r io.Reader) (err error) {
	if _, err = os.Stat(filepath.Dir(m.options.SnapshotPath)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return status.Error(codes.FailedPrecondition, "etcd service is not ready for recovery yet")
		}

		return err
	}

	file, err := os.OpenFile(m.options.SnapshotPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o700)
	if err != nil {
		return fmt.Errorf("error creating etcd recovery snapshot: %w", err)
	}

	defer func() {
		if closeErr := file.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("error closing snapshot: %w", closeErr)
		}

		if err != nil {
			os.Remove(m.options.SnapshotPath) //nolint:errcheck,gosec // the upload's error is the one that counts
		}
	}()

	written, err := io.Copy(file, io.LimitReader(r, maxSnapshotBytes+1))
	if err != nil {
		return fmt.Errorf("error writing snapshot: %w", err)
	}

	if written > maxSnapshotBytes {
		return status.Errorf(codes.ResourceExhausted, "snapshot is larger than %d bytes", int64(maxSnapshotBytes))
	}

	if err = file.Sync(); err != nil {
		return fmt.Errorf("error fsyncing snapshot: %w", err)
	}

	return nil
}
