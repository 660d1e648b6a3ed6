// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/test/hollow/kubernetes/etcd"
	"maesh.dev/ichor/test/hollow/kubernetes/pki"
)

// etcdMember is the node's member, or Talos' refusal on a worker; what names the call.
func (n *node) etcdMember(what string) (*etcd.Member, error) {
	if n.member == nil {
		return nil, status.Errorf(codes.Unimplemented, "%s is only available on control plane nodes", what)
	}

	return n.member, nil
}

// Bootstrap implements workload.Runtime.
func (n *node) Bootstrap(ctx context.Context, req *machine.BootstrapRequest) error {
	select {
	case <-n.criUp:
	default:
		return status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	}

	member, err := n.etcdMember("bootstrap")
	if err != nil {
		return err
	}

	return member.Bootstrap(ctx, req)
}

// EtcdMemberList implements workload.Runtime.
func (n *node) EtcdMemberList(ctx context.Context, req *machine.EtcdMemberListRequest) (*machine.EtcdMembers, error) {
	member, err := n.etcdMember("member list")
	if err != nil {
		return nil, err
	}

	return member.MemberList(ctx, req.GetQueryLocal())
}

// EtcdRemoveMemberByID implements workload.Runtime.
func (n *node) EtcdRemoveMemberByID(ctx context.Context, memberID uint64) error {
	member, err := n.etcdMember("etcd remove member")
	if err != nil {
		return err
	}

	return member.RemoveMember(ctx, memberID)
}

// EtcdLeaveCluster implements workload.Runtime.
func (n *node) EtcdLeaveCluster(ctx context.Context) error {
	member, err := n.etcdMember("etcd leave")
	if err != nil {
		return err
	}

	return member.Leave(ctx)
}

// EtcdForfeitLeadership implements workload.Runtime.
func (n *node) EtcdForfeitLeadership(ctx context.Context) (string, error) {
	member, err := n.etcdMember("etcd forfeit leadership")
	if err != nil {
		return "", err
	}

	return member.ForfeitLeadership(ctx)
}

// EtcdStatus implements workload.Runtime.
func (n *node) EtcdStatus(ctx context.Context) (*machine.EtcdMemberStatus, error) {
	member, err := n.etcdMember("etcd status")
	if err != nil {
		return nil, err
	}

	return member.Status(ctx)
}

// EtcdAlarmList implements workload.Runtime.
func (n *node) EtcdAlarmList(ctx context.Context) ([]*machine.EtcdMemberAlarm, error) {
	member, err := n.etcdMember("etcd alarm list")
	if err != nil {
		return nil, err
	}

	return member.AlarmList(ctx)
}

// EtcdAlarmDisarm implements workload.Runtime.
func (n *node) EtcdAlarmDisarm(ctx context.Context) ([]*machine.EtcdMemberAlarm, error) {
	member, err := n.etcdMember("etcd alarm list")
	if err != nil {
		return nil, err
	}

	return member.AlarmDisarm(ctx)
}

// EtcdDefragment implements workload.Runtime.
func (n *node) EtcdDefragment(ctx context.Context) error {
	member, err := n.etcdMember("etcd defragment")
	if err != nil {
		return err
	}

	return member.Defragment(ctx)
}

// EtcdSnapshot implements workload.Runtime.
func (n *node) EtcdSnapshot(ctx context.Context, w io.Writer) error {
	member, err := n.etcdMember("etcd snapshot")
	if err != nil {
		return err
	}

	return member.Snapshot(ctx, w)
}

// EtcdRecover implements workload.Runtime.
func (n *node) EtcdRecover(_ context.Context, r io.Reader) error {
	member, err := n.etcdMember("etcd recover")
	if err != nil {
		return err
	}

	return member.Recover(r)
}

// Kubeconfig implements workload.Runtime.
func (n *node) Kubeconfig(context.Context) ([]byte, error) {
	return pki.AdminKubeconfig(n.currentConfig().Cluster())
}
