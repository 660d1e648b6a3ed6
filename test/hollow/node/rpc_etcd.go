// SPDX-License-Identifier: Apache-2.0

package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"maesh.dev/ichor/test/hollow/workload"
)

// etcdRuntime is what runs etcd; an error while nothing does.
func (b *boot) etcdRuntime() (workload.Runtime, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runtime == nil {
		return nil, status.Error(codes.Unavailable, errNoWorkload.Error())
	}
	return b.runtime, nil
}

// etcd is the common start of the Etcd calls: control planes only, and only once the workload runs.
func (b *boot) etcd(what string) (workload.Runtime, error) {
	if err := b.needControlPlane(what); err != nil {
		return nil, err
	}
	return b.etcdRuntime()
}

// EtcdMemberList implements MachineService.
func (s *machineService) EtcdMemberList(ctx context.Context, in *machine.EtcdMemberListRequest) (*machine.EtcdMemberListResponse, error) {
	rt, err := s.boot.etcd("member list")
	if err != nil {
		return nil, err
	}
	members, err := rt.EtcdMemberList(ctx, in)
	if err != nil {
		return nil, err
	}
	return &machine.EtcdMemberListResponse{Messages: []*machine.EtcdMembers{members}}, nil
}

// EtcdRemoveMemberByID implements MachineService.
func (s *machineService) EtcdRemoveMemberByID(ctx context.Context, in *machine.EtcdRemoveMemberByIDRequest) (*machine.EtcdRemoveMemberByIDResponse, error) {
	rt, err := s.boot.etcd("etcd remove member")
	if err != nil {
		return nil, err
	}
	if err := rt.EtcdRemoveMemberByID(ctx, in.GetMemberId()); err != nil {
		return nil, err
	}
	return &machine.EtcdRemoveMemberByIDResponse{Messages: []*machine.EtcdRemoveMemberByID{{}}}, nil
}

// EtcdLeaveCluster implements MachineService.
func (s *machineService) EtcdLeaveCluster(ctx context.Context, _ *machine.EtcdLeaveClusterRequest) (*machine.EtcdLeaveClusterResponse, error) {
	rt, err := s.boot.etcd("etcd leave")
	if err != nil {
		return nil, err
	}
	if err := rt.EtcdLeaveCluster(ctx); err != nil {
		return nil, err
	}
	return &machine.EtcdLeaveClusterResponse{Messages: []*machine.EtcdLeaveCluster{{}}}, nil
}

// EtcdForfeitLeadership implements MachineService.
func (s *machineService) EtcdForfeitLeadership(ctx context.Context, _ *machine.EtcdForfeitLeadershipRequest) (*machine.EtcdForfeitLeadershipResponse, error) {
	rt, err := s.boot.etcd("etcd forfeit leadership")
	if err != nil {
		return nil, err
	}
	member, err := rt.EtcdForfeitLeadership(ctx)
	if err != nil {
		return nil, err
	}
	return &machine.EtcdForfeitLeadershipResponse{Messages: []*machine.EtcdForfeitLeadership{{Member: member}}}, nil
}

// EtcdStatus implements MachineService.
func (s *machineService) EtcdStatus(ctx context.Context, _ *emptypb.Empty) (*machine.EtcdStatusResponse, error) {
	rt, err := s.boot.etcd("etcd status")
	if err != nil {
		return nil, err
	}
	st, err := rt.EtcdStatus(ctx)
	if err != nil {
		return nil, err
	}
	return &machine.EtcdStatusResponse{Messages: []*machine.EtcdStatus{{MemberStatus: st}}}, nil
}

// EtcdAlarmList implements MachineService.
func (s *machineService) EtcdAlarmList(ctx context.Context, _ *emptypb.Empty) (*machine.EtcdAlarmListResponse, error) {
	rt, err := s.boot.etcd("etcd alarm list")
	if err != nil {
		return nil, err
	}
	alarms, err := rt.EtcdAlarmList(ctx)
	if err != nil {
		return nil, err
	}
	return &machine.EtcdAlarmListResponse{Messages: []*machine.EtcdAlarm{{MemberAlarms: alarms}}}, nil
}

// EtcdAlarmDisarm implements MachineService.
func (s *machineService) EtcdAlarmDisarm(ctx context.Context, _ *emptypb.Empty) (*machine.EtcdAlarmDisarmResponse, error) {
	rt, err := s.boot.etcd("etcd alarm disarm")
	if err != nil {
		return nil, err
	}
	alarms, err := rt.EtcdAlarmDisarm(ctx)
	if err != nil {
		return nil, err
	}
	return &machine.EtcdAlarmDisarmResponse{Messages: []*machine.EtcdAlarmDisarm{{MemberAlarms: alarms}}}, nil
}

// EtcdDefragment implements MachineService.
func (s *machineService) EtcdDefragment(ctx context.Context, _ *emptypb.Empty) (*machine.EtcdDefragmentResponse, error) {
	rt, err := s.boot.etcd("etcd defragment")
	if err != nil {
		return nil, err
	}
	if err := rt.EtcdDefragment(ctx); err != nil {
		return nil, err
	}
	return &machine.EtcdDefragmentResponse{Messages: []*machine.EtcdDefragment{{}}}, nil
}

// checkDowngrade is the check of the version that an etcd downgrade names.
func checkDowngrade(version string) error {
	if version == "" {
		return status.Error(codes.InvalidArgument, "version is required for etcd downgrade")
	}
	major, minor, two := strings.Cut(version, ".")
	if !two || strings.Contains(minor, ".") {
		return status.Error(codes.InvalidArgument, "version should be in MAJOR.MINOR format")
	}
	x, err := strconv.Atoi(major)
	if err != nil {
		return status.Error(codes.InvalidArgument, "major version should be a number")
	}
	y, err := strconv.Atoi(minor)
	if err != nil {
		return status.Error(codes.InvalidArgument, "minor version should be a number")
	}
	if x < 3 || (x == 3 && y < 5) {
		return status.Error(codes.InvalidArgument, "etcd downgrade is only supported to 3.5 and later versions")
	}
	return nil
}

// errDowngrade is what is left of a downgrade's checks: etcd here runs one version only.
var errDowngrade = status.Error(codes.FailedPrecondition, "failed to query etcd status: etcdserver: invalid downgrade target version")

func (b *boot) downgrade(what, version string, withVersion bool) error {
	if err := b.needControlPlane(what); err != nil {
		return err
	}
	if withVersion {
		if err := checkDowngrade(version); err != nil {
			return err
		}
	}
	if _, err := b.etcdRuntime(); err != nil {
		return err
	}
	return errDowngrade
}

// EtcdDowngradeValidate implements MachineService.
func (s *machineService) EtcdDowngradeValidate(_ context.Context, in *machine.EtcdDowngradeValidateRequest) (*machine.EtcdDowngradeValidateResponse, error) {
	return nil, s.boot.downgrade("etcd downgrade validate", in.GetVersion(), true)
}

// EtcdDowngradeEnable implements MachineService.
func (s *machineService) EtcdDowngradeEnable(_ context.Context, in *machine.EtcdDowngradeEnableRequest) (*machine.EtcdDowngradeEnableResponse, error) {
	return nil, s.boot.downgrade("etcd downgrade enable", in.GetVersion(), true)
}

// EtcdDowngradeCancel implements MachineService.
func (s *machineService) EtcdDowngradeCancel(context.Context, *emptypb.Empty) (*machine.EtcdDowngradeCancelResponse, error) {
	return nil, s.boot.downgrade("etcd downgrade cancel", "", false)
}

// chunkSize is that of Talos' streams of bytes (Talos: pkg/chunker/stream).
const chunkSize = 1024

// chunkWriter sends what is written in chunks.
type chunkWriter struct {
	send func(*common.Data) error
}

// Write implements io.Writer.
func (w *chunkWriter) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := min(len(p), chunkSize)
		if err := w.send(&common.Data{Bytes: bytes.Clone(p[:n])}); err != nil {
			return written, err
		}
		written, p = written+n, p[n:]
	}
	return written, nil
}

// EtcdSnapshot implements MachineService.
func (s *machineService) EtcdSnapshot(_ *machine.EtcdSnapshotRequest, srv machine.MachineService_EtcdSnapshotServer) error {
	rt, err := s.boot.etcd("etcd snapshot")
	if err != nil {
		return err
	}
	return rt.EtcdSnapshot(srv.Context(), &chunkWriter{send: srv.Send})
}

// EtcdRecover implements MachineService.
func (s *machineService) EtcdRecover(srv grpc.ClientStreamingServer[common.Data, machine.EtcdRecoverResponse]) error {
	s.boot.mu.Lock()
	booted := s.boot.booted
	s.boot.mu.Unlock()
	if !booted {
		return status.Error(codes.FailedPrecondition, "etcd service is not ready for recovery yet")
	}
	rt, err := s.boot.etcd("etcd recover")
	if err != nil {
		return err
	}
	if err := rt.EtcdRecover(srv.Context(), &chunkReader{receive: srv.Recv}); err != nil {
		return err
	}
	return srv.SendAndClose(&machine.EtcdRecoverResponse{Messages: []*machine.EtcdRecover{{}}})
}

// chunkReader reads what is received in chunks.
type chunkReader struct {
	receive func() (*common.Data, error)
	rest    []byte
}

// Read implements io.Reader.
func (r *chunkReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		data, err := r.receive()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, err
		}
		r.rest = data.GetBytes()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Kubeconfig implements MachineService: one message with a gzipped tar of one file.
func (s *machineService) Kubeconfig(_ *emptypb.Empty, srv machine.MachineService_KubeconfigServer) error {
	if err := s.boot.needControlPlane("kubeconfig"); err != nil {
		return err
	}
	rt, err := s.boot.etcdRuntime()
	if err != nil {
		return err
	}
	kubeconfig, err := rt.Kubeconfig(srv.Context())
	if err != nil {
		return err
	}
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	header := &tar.Header{Typeflag: tar.TypeReg, Name: "kubeconfig", Size: int64(len(kubeconfig)), ModTime: time.Now(), Mode: 0o600}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	if _, err := archive.Write(kubeconfig); err != nil {
		return err
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		return err
	}
	return srv.Send(&common.Data{Bytes: out.Bytes()})
}

// GenerateClientConfiguration implements MachineService: a control plane signs with the CA's key that it has.
func (s *machineService) GenerateClientConfiguration(_ context.Context, in *machine.GenerateClientConfigurationRequest) (*machine.GenerateClientConfigurationResponse, error) {
	if err := s.boot.needControlPlane("generate client configuration"); err != nil {
		return nil, err
	}
	ttl := in.GetCrtTtl().AsDuration()
	if ttl <= 0 {
		return nil, status.Error(codes.InvalidArgument, "crt_ttl should be positive")
	}
	roles, _ := role.Parse(in.GetRoles())
	cfg := s.boot.activeConfig()
	bundle := secrets.NewBundleFromConfig(secrets.NewFixedClock(time.Now()), cfg)
	certificate, err := bundle.GenerateTalosAPIClientCertificateWithTTL(roles, ttl)
	if err != nil {
		return nil, err
	}
	name := cfg.Cluster().Name()
	if r := roles.Strings(); len(r) == 1 {
		name = fmt.Sprintf("%s@%s", strings.TrimPrefix(r[0], role.Prefix), name)
	}
	talosconfig, err := clientconfig.NewConfig(name, nil, bundle.Certs.OS.Crt, certificate).Bytes()
	if err != nil {
		return nil, err
	}
	return &machine.GenerateClientConfigurationResponse{Messages: []*machine.GenerateClientConfiguration{{
		Ca: bundle.Certs.OS.Crt, Crt: certificate.Crt, Key: certificate.Key, Talosconfig: talosconfig,
	}}}, nil
}
