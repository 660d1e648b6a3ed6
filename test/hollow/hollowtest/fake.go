// SPDX-License-Identifier: Apache-2.0

package hollowtest

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/test/hollow/kubernetes/pki"
	"maesh.dev/ichor/test/hollow/kubernetes/trustd"
	"maesh.dev/ichor/test/hollow/workload"
)

// FakeWorkload stands for Kubernetes where a test is about the machine alone: a control plane waits for Bootstrap and is
// then up at once; a worker is up at once. trustd is the real one, because a worker's API needs it. Each etcd is a
// cluster of its own.
type FakeWorkload struct{}

var _ workload.Factory = FakeWorkload{}

// Start implements workload.Factory.
func (FakeWorkload) Start(m workload.Machine, notify func(workload.Status)) (workload.Runtime, error) {
	f := &fakeRuntime{machine: m, notify: notify, config: m.Config}
	if f.controlPlane() {
		server, err := trustd.Start(context.Background(), pki.Identity{Hostname: m.Hostname, Address: m.Address}, f.current)
		if err != nil {
			return nil, err
		}
		f.trustd = server
	}
	f.done.Add(1)
	go func() {
		defer f.done.Done()
		f.tell()
	}()
	return f, nil
}

type fakeRuntime struct {
	machine workload.Machine
	notify  func(workload.Status)
	trustd  *trustd.Server
	done    sync.WaitGroup

	mu      sync.Mutex
	config  config.Provider
	stopped bool
}

func (f *fakeRuntime) current() config.Provider {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config
}

func (f *fakeRuntime) controlPlane() bool { return f.current().Machine().Type().IsControlPlane() }

func (f *fakeRuntime) etcdDir() string { return filepath.Join(f.machine.EphemeralDir, "lib", "etcd") }

func (f *fakeRuntime) bootstrapped() bool {
	_, err := os.Stat(filepath.Join(f.etcdDir(), "member"))
	return err == nil
}

const fakeMemberID = 0x1c40

func (f *fakeRuntime) tell() {
	s := workload.Status{NodeName: f.machine.Hostname}
	add := func(id string, running bool, message string) {
		state := "Running"
		if !running {
			state = "Preparing"
		}
		s.Services = append(s.Services, workload.Service{ID: id, Running: running, Healthy: running, State: state, Message: message})
	}
	up := true
	if f.controlPlane() {
		up = f.bootstrapped()
		add("trustd", true, "Started task trustd")
		add("etcd", up, "Running pre state")
	}
	add("kubelet", true, "Started task kubelet")
	if up {
		s.NodeRegistered, s.NodeReady = true, true
		if f.controlPlane() {
			s.EtcdMemberID = fakeMemberID
			for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
				s.StaticPods = append(s.StaticPods, workload.StaticPod{Name: name + "-" + f.machine.Hostname, Ready: true})
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopped {
		f.notify(s)
	}
}

// Bootstrap implements workload.Runtime.
func (f *fakeRuntime) Bootstrap(context.Context, *machine.BootstrapRequest) error {
	if f.bootstrapped() {
		return status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	}
	if err := os.MkdirAll(filepath.Join(f.etcdDir(), "member"), 0o700); err != nil {
		return err
	}
	f.tell()
	return nil
}

func (f *fakeRuntime) needEtcd() error {
	if !f.bootstrapped() {
		return status.Error(codes.DeadlineExceeded, "context deadline exceeded")
	}
	return nil
}

// EtcdMemberList implements workload.Runtime.
func (f *fakeRuntime) EtcdMemberList(context.Context, *machine.EtcdMemberListRequest) (*machine.EtcdMembers, error) {
	return &machine.EtcdMembers{Members: []*machine.EtcdMember{{Id: fakeMemberID, Hostname: f.machine.Hostname}}}, f.needEtcd()
}

// EtcdRemoveMemberByID implements workload.Runtime.
func (f *fakeRuntime) EtcdRemoveMemberByID(context.Context, uint64) error {
	if err := f.needEtcd(); err != nil {
		return err
	}
	return status.Error(codes.NotFound, "etcdserver: member not found")
}

// EtcdLeaveCluster implements workload.Runtime; the only member can't leave.
func (f *fakeRuntime) EtcdLeaveCluster(context.Context) error {
	if err := f.needEtcd(); err != nil {
		return err
	}
	return status.Error(codes.Unknown, "failed to leave cluster: etcdserver: re-configuration failed due to not enough started members")
}

// EtcdForfeitLeadership implements workload.Runtime.
func (f *fakeRuntime) EtcdForfeitLeadership(context.Context) (string, error) { return "", f.needEtcd() }

// EtcdStatus implements workload.Runtime.
func (f *fakeRuntime) EtcdStatus(context.Context) (*machine.EtcdMemberStatus, error) {
	return &machine.EtcdMemberStatus{MemberId: fakeMemberID, Leader: fakeMemberID}, f.needEtcd()
}

// EtcdAlarmList implements workload.Runtime.
func (f *fakeRuntime) EtcdAlarmList(context.Context) ([]*machine.EtcdMemberAlarm, error) {
	return nil, f.needEtcd()
}

// EtcdAlarmDisarm implements workload.Runtime.
func (f *fakeRuntime) EtcdAlarmDisarm(context.Context) ([]*machine.EtcdMemberAlarm, error) {
	return nil, f.needEtcd()
}

// EtcdDefragment implements workload.Runtime.
func (f *fakeRuntime) EtcdDefragment(context.Context) error { return f.needEtcd() }

// EtcdSnapshot implements workload.Runtime.
func (f *fakeRuntime) EtcdSnapshot(_ context.Context, w io.Writer) error {
	if err := f.needEtcd(); err != nil {
		return err
	}
	_, err := io.WriteString(w, "no real snapshot")
	return err
}

// EtcdRecover implements workload.Runtime.
func (f *fakeRuntime) EtcdRecover(_ context.Context, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// Kubeconfig implements workload.Runtime.
func (f *fakeRuntime) Kubeconfig(context.Context) ([]byte, error) {
	return []byte("apiVersion: v1\nkind: Config\n"), nil
}

// UpdateConfig implements workload.Runtime.
func (f *fakeRuntime) UpdateConfig(cfg config.Provider) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config = cfg
}

// Stop implements workload.Runtime.
func (f *fakeRuntime) Stop(context.Context, bool) {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	f.done.Wait()
	if f.trustd != nil {
		f.trustd.Stop()
	}
}
