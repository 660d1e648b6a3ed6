// SPDX-License-Identifier: Apache-2.0

package talos_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/pkg/talos"
)

func TestEtcdMembers(t *testing.T) {
	t.Parallel()
	node, credentials := configuredNode(t)
	node.onMembers = func(_ context.Context, request *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
		if !request.GetQueryLocal() {
			t.Error("the node was to ask its own etcd")
		}
		return &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{{Members: []*machineapi.EtcdMember{
			{Id: 7, Hostname: "cp-1", PeerUrls: []string{"https://10.0.0.1:2380"}},
			{Id: 8, Hostname: "cp-2", IsLearner: true},
		}}}}, nil
	}
	got, err := node.dialConfigured(t, credentials).EtcdMembers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []talos.EtcdMember{
		{ID: 7, Hostname: "cp-1", PeerURLs: []string{"https://10.0.0.1:2380"}},
		{ID: 8, Hostname: "cp-2", Learner: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

func TestAnEtcdMemberIsRemoved(t *testing.T) {
	t.Parallel()
	node, credentials := configuredNode(t)
	connection := node.dialConfigured(t, credentials)
	for name, tc := range map[string]struct {
		answer error
		failed bool
	}{
		"it goes":         {nil, false},
		"it is gone":      {status.Error(codes.Unknown, "failed to remove member: etcdserver: member not found"), false},
		"there is no one": {status.Error(codes.NotFound, "no such member"), false},
		"no quorum":       {status.Error(codes.Unavailable, "etcdserver: no leader"), true},
	} {
		var asked uint64
		node.onRemove = func(id uint64) error { asked = id; return tc.answer }
		if err := connection.EtcdRemoveMember(t.Context(), 0xab); (err != nil) != tc.failed || asked != 0xab {
			t.Errorf("%s: member %x, %v", name, asked, err)
		}
	}
}

func TestEtcdStatus(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer  *machineapi.EtcdStatusResponse
		err     error
		want    talos.EtcdStatus
		leader  bool
		wantErr string
	}{
		"a member that follows a leader": {
			answer: &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{MemberStatus: &machineapi.EtcdMemberStatus{
				MemberId: 7, Leader: 8, RaftIndex: 100, RaftTerm: 3, RaftAppliedIndex: 99, DbSize: 4096, DbSizeInUse: 2048, ProtocolVersion: "3.6.4", IsLearner: true,
			}}}},
			want:   talos.EtcdStatus{MemberID: 7, Leader: 8, RaftIndex: 100, RaftTerm: 3, RaftApplied: 99, Size: 4096, InUse: 2048, Version: "3.6.4", Learner: true},
			leader: true,
		},
		"a member without a quorum names its alarms as well": {
			answer: &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{MemberStatus: &machineapi.EtcdMemberStatus{
				MemberId: 7, Errors: []string{"etcdserver: no leader", "memberID:7 alarm:NOSPACE\x00 "},
			}}}},
			want: talos.EtcdStatus{MemberID: 7, Errors: []string{"etcdserver: no leader", "memberID:7 alarm:NOSPACE"}},
		},
		"a leader that is told of and gone": {
			answer: &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{MemberStatus: &machineapi.EtcdMemberStatus{MemberId: 7, Leader: 8, Errors: []string{"etcdserver: no leader"}}}}},
			want:   talos.EtcdStatus{MemberID: 7, Leader: 8, Errors: []string{"etcdserver: no leader"}},
		},
		"an error inside of the answer": {
			answer:  &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{Metadata: &common.Metadata{Error: "failed to query\netcd status"}}}},
			wantErr: "failed to query etcd status",
		},
		"no status":   {answer: &machineapi.EtcdStatusResponse{}, wantErr: "no status"},
		"on a worker": {err: status.Error(codes.Unimplemented, "etcd status is only available on control plane nodes"), wantErr: "Unimplemented: etcd status is only"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, credentials := configuredNode(t)
			node.onStatus = func() (*machineapi.EtcdStatusResponse, error) { return tc.answer, tc.err }
			got, err := node.dialConfigured(t, credentials).EtcdStatus(t.Context())
			if (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Fatalf("got error %v, want %q", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || got.KnowsLeader() != tc.leader {
				t.Errorf("knows a leader %t, want %t; status (-want +got):\n%s", got.KnowsLeader(), tc.leader, diff)
			}
		})
	}
}

func TestEtcdAlarms(t *testing.T) {
	t.Parallel()
	node, credentials := configuredNode(t)
	node.onAlarms = func() (*machineapi.EtcdAlarmListResponse, error) {
		return &machineapi.EtcdAlarmListResponse{Messages: []*machineapi.EtcdAlarm{{MemberAlarms: []*machineapi.EtcdMemberAlarm{
			{MemberId: 7, Alarm: machineapi.EtcdMemberAlarm_NOSPACE}, {MemberId: 8}, {MemberId: 9, Alarm: machineapi.EtcdMemberAlarm_CORRUPT},
		}}}}, nil
	}
	connection := node.dialConfigured(t, credentials)
	got, err := connection.EtcdAlarms(t.Context())
	if diff := cmp.Diff([]talos.EtcdAlarm{{MemberID: 7, Kind: "NOSPACE"}, {MemberID: 9, Kind: "CORRUPT"}}, got); diff != "" || err != nil {
		t.Errorf("error %v, alarms (-want +got):\n%s", err, diff)
	}
	node.onAlarms = func() (*machineapi.EtcdAlarmListResponse, error) {
		return nil, status.Error(codes.Unavailable, "etcdserver: no leader")
	}
	if _, err := connection.EtcdAlarms(t.Context()); !talos.IsLost(err) {
		t.Errorf("without a quorum: %v", err)
	}
}

// broken is a file on a disk that is full.
type broken struct{ left int }

func (b *broken) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(p), nil
}

func TestEtcdSnapshot(t *testing.T) {
	t.Parallel()
	chunk := bytes.Repeat([]byte("etcd"), 256)
	send := func(times int, last error) func(machineapi.MachineService_EtcdSnapshotServer) error {
		return func(stream machineapi.MachineService_EtcdSnapshotServer) error {
			for range times {
				if err := stream.Send(&common.Data{Bytes: chunk}); err != nil {
					return err
				}
			}
			return last
		}
	}
	for name, tc := range map[string]struct {
		serve   func(machineapi.MachineService_EtcdSnapshotServer) error
		room    int
		want    int64
		wantErr string
	}{
		"all of it": {serve: send(5000, nil), want: 5000 * 1024},
		"it breaks off": {
			serve: send(3, status.Error(codes.Unavailable, "etcd is stopping")), want: 3 * 1024, wantErr: "Unavailable: etcd is stopping",
		},
		"an error inside of the stream, as Talos 1.13 sends it": {
			serve: func(stream machineapi.MachineService_EtcdSnapshotServer) error {
				return stream.Send(&common.Data{Metadata: &common.Metadata{Error: "failed reading etcd snapshot"}})
			},
			wantErr: "failed reading etcd snapshot",
		},
		"no room for it": {serve: send(100, nil), room: 2048, want: 3 * 1024, wantErr: "no space left"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, credentials := configuredNode(t)
			node.onSnapshot = tc.serve
			room := tc.room
			if room == 0 {
				room = 1 << 30
			}
			got, err := node.dialConfigured(t, credentials).EtcdSnapshot(t.Context(), &broken{left: room})
			if (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Fatalf("got error %v, want %q", err, tc.wantErr)
			}
			if got != tc.want {
				t.Errorf("%d bytes, want %d", got, tc.want)
			}
		})
	}
}

func TestAnEtcdSnapshotThatHangsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	node, credentials := configuredNode(t)
	started := make(chan struct{})
	node.onSnapshot = func(stream machineapi.MachineService_EtcdSnapshotServer) error {
		close(started)
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	stopped := errors.New("the person stopped it")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-started
		cancel(stopped)
	}()
	if _, err := node.dialConfigured(t, credentials).EtcdSnapshot(ctx, &broken{}); !errors.Is(err, stopped) {
		t.Errorf("got %v, want %v", err, stopped)
	}
}
