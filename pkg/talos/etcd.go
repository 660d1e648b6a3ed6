// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// EtcdReader is what a node tells of its own etcd member. All but the snapshot may be asked with os:reader; the snapshot
// needs os:etcd:backup, which may ask for the members, the status and the alarms as well.
// Source: Talos, internal/app/machined/pkg/system/services/machined.go (rules).
type EtcdReader interface {
	// EtcdMembers asks the node's own etcd. It needs a leader: without a quorum there is no answer.
	// Source: Talos, EtcdMemberList (clientv3.WithRequireLeader).
	EtcdMembers(ctx context.Context) ([]EtcdMember, error)
	// EtcdStatus is answered by the member alone, with or without a quorum.
	EtcdStatus(ctx context.Context) (EtcdStatus, error)
	// EtcdAlarms needs a quorum; without one, EtcdStatus.Errors names the alarms that the member knows of.
	// Source: etcd, server/etcdserver/v3_server.go (Alarm is a proposal, also where it only reads).
	EtcdAlarms(ctx context.Context) ([]EtcdAlarm, error)
	// EtcdSnapshot writes a snapshot of the node's own member, which is taken with or without a quorum, and returns how
	// many bytes it has. It ends when nothing comes for a while, not after a time: a snapshot may have gigabytes.
	EtcdSnapshot(ctx context.Context, to io.Writer) (int64, error)
}

// EtcdStatus is what a member of etcd says of itself.
type EtcdStatus struct {
	MemberID uint64
	// Leader is zero while the member knows none: there is no quorum, or an election goes on.
	Leader uint64
	// RaftIndex and RaftTerm say how far the member's log goes, RaftApplied how much of it is applied.
	RaftIndex, RaftTerm, RaftApplied uint64
	// Size is that of the database's file in bytes, InUse what of it is used.
	Size, InUse int64
	Version     string
	Learner     bool
	// Errors are etcd's own words: "etcdserver: no leader", and alarms.
	Errors []string
}

// EtcdAlarm is an alarm of a member.
type EtcdAlarm struct {
	MemberID uint64
	// Kind is etcd's word: NOSPACE or CORRUPT.
	Kind string
}

const (
	// etcdTimeout bounds questions to a node's etcd. They hang while etcd is down.
	etcdTimeout = 15 * time.Second
	// snapshotIdle is how long a snapshot may bring nothing. etcd opens its database before it sends the first byte.
	snapshotIdle = 30 * time.Second
	// maxSnapshot is the size of the largest snapshot that is taken: etcd's own quota ends at 8 GiB, the file may be a
	// little larger.
	maxSnapshot = 9 << 30
	// maxEtcdErrors is how many of a member's errors are kept.
	maxEtcdErrors = 16
)

func (n *node) EtcdMembers(ctx context.Context) ([]EtcdMember, error) {
	return within(ctx, n, etcdTimeout, "reading the etcd members", func(ctx context.Context) ([]EtcdMember, error) {
		answer, err := n.machine.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{QueryLocal: true})
		if err != nil {
			return nil, err
		}
		var members []EtcdMember
		for _, message := range answer.GetMessages() {
			if text := message.GetMetadata().GetError(); text != "" {
				return nil, errors.New(oneLine(text))
			}
			for _, member := range message.GetMembers() {
				members = append(members, EtcdMember{
					ID: member.GetId(), Hostname: clean(member.GetHostname()), PeerURLs: member.GetPeerUrls(), Learner: member.GetIsLearner(),
				})
			}
		}
		return members, nil
	})
}

func (n *node) EtcdStatus(ctx context.Context) (EtcdStatus, error) {
	return within(ctx, n, etcdTimeout, "reading the status of etcd", func(ctx context.Context) (EtcdStatus, error) {
		answer, err := n.machine.EtcdStatus(ctx, &emptypb.Empty{})
		if err != nil {
			return EtcdStatus{}, err
		}
		for _, message := range answer.GetMessages() {
			if text := message.GetMetadata().GetError(); text != "" {
				return EtcdStatus{}, errors.New(oneLine(text))
			}
			if member := message.GetMemberStatus(); member != nil {
				return etcdStatus(member), nil
			}
		}
		return EtcdStatus{}, errors.New("the machine sent no status of a member")
	})
}

func etcdStatus(member *machineapi.EtcdMemberStatus) EtcdStatus {
	out := EtcdStatus{
		MemberID: member.GetMemberId(), Leader: member.GetLeader(),
		RaftIndex: member.GetRaftIndex(), RaftTerm: member.GetRaftTerm(), RaftApplied: member.GetRaftAppliedIndex(),
		Size: member.GetDbSize(), InUse: member.GetDbSizeInUse(),
		Version: clean(member.GetProtocolVersion()), Learner: member.GetIsLearner(),
	}
	for _, text := range member.GetErrors() {
		if len(out.Errors) < maxEtcdErrors {
			out.Errors = append(out.Errors, clean(text))
		}
	}
	return out
}

func (n *node) EtcdAlarms(ctx context.Context) ([]EtcdAlarm, error) {
	return within(ctx, n, etcdTimeout, "reading the alarms of etcd", func(ctx context.Context) ([]EtcdAlarm, error) {
		answer, err := n.machine.EtcdAlarmList(ctx, &emptypb.Empty{})
		if err != nil {
			return nil, err
		}
		var alarms []EtcdAlarm
		for _, message := range answer.GetMessages() {
			if text := message.GetMetadata().GetError(); text != "" {
				return nil, errors.New(oneLine(text))
			}
			for _, alarm := range message.GetMemberAlarms() {
				if alarm.GetAlarm() != machineapi.EtcdMemberAlarm_NONE {
					alarms = append(alarms, EtcdAlarm{MemberID: alarm.GetMemberId(), Kind: alarm.GetAlarm().String()})
				}
			}
		}
		return alarms, nil
	})
}

// Talos wraps etcd's own answer for a member that isn't there in a code of its own; etcd's words stay.
// Source: Talos, internal/app/machined/internal/server/v1alpha1 (EtcdRemoveMemberByID); etcd, api/v3rpc/rpctypes.ErrMemberNotFound.
const memberNotFound = "member not found"

func (n *node) EtcdRemoveMember(ctx context.Context, id uint64) error {
	_, err := within(ctx, n, n.options.WriteTimeout, "removing an etcd member", func(ctx context.Context) (struct{}, error) {
		answer, err := n.machine.EtcdRemoveMemberByID(ctx, &machineapi.EtcdRemoveMemberByIDRequest{MemberId: id})
		if err != nil && (isNotFound(err) || strings.Contains(err.Error(), memberNotFound)) {
			return struct{}{}, nil
		}
		if err != nil {
			return struct{}{}, err
		}
		for _, message := range answer.GetMessages() {
			if text := message.GetMetadata().GetError(); text != "" {
				return struct{}{}, errors.New(oneLine(text))
			}
		}
		return struct{}{}, nil
	})
	return err
}

func (n *node) EtcdSnapshot(ctx context.Context, to io.Writer) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(snapshotIdle, func() {
		cancel(fmt.Errorf("nothing came for %s", snapshotIdle))
	})
	defer stalled.Stop()
	size, err := n.snapshot(ctx, to, func() { stalled.Reset(snapshotIdle) })
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return size, &CallError{Address: n.channel.address, What: "snapshot of etcd", Err: err}
	}
	return size, nil
}

// snapshot copies the chunks of a snapshot as they come.
func (n *node) snapshot(ctx context.Context, to io.Writer, alive func()) (int64, error) {
	stream, err := n.machine.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{})
	if err != nil {
		return 0, err
	}
	for size := int64(0); ; {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return size, nil
		}
		if err == nil {
			err = chunkError(chunk)
		}
		if err != nil {
			return size, err
		}
		alive()
		if size += int64(len(chunk.GetBytes())); size > maxSnapshot {
			return size, fmt.Errorf("the machine sent more than %d bytes", int64(maxSnapshot))
		}
		if _, err := to.Write(chunk.GetBytes()); err != nil {
			return size, err
		}
	}
}

// chunkError is the error inside of a chunk: before Talos 1.14 a stream's error comes there.
func chunkError(chunk *common.Data) error {
	failed := chunk.GetMetadata()
	switch {
	case failed.GetError() == "":
		return nil
	case failed.GetStatus() != nil:
		return status.FromProto(failed.GetStatus()).Err()
	default:
		return errors.New(oneLine(failed.GetError()))
	}
}

// KnowsLeader tells that the member follows a leader, so that there is a quorum.
func (s EtcdStatus) KnowsLeader() bool {
	return s.Leader != 0 && !slices.ContainsFunc(s.Errors, func(text string) bool { return strings.Contains(text, "no leader") })
}
