// SPDX-License-Identifier: Apache-2.0

// Package workload is the seam between a hollow Talos node and what a configured node runs: etcd, the Kubernetes
// control plane, trustd and the kubelet. The node (test/hollow/node) owns the machine's life: disk, stages, Talos API.
// The implementation (test/hollow/kubernetes) owns the processes, and knows nothing of maintenance mode or gRPC roles.
package workload

import (
	"context"
	"io"
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
)

// Machine is what the workload may know of the node it runs on, fixed for one boot.
type Machine struct {
	// Name is the machine's name in the fleet file; it appears in log lines and file names only.
	Name string
	// Address is the node's own address; every listener of the workload binds to it.
	Address netip.Addr
	// Hostname is the effective hostname; etcd's member name and the Node's name follow it.
	Hostname string
	// TalosVersion is the running version with its "v", for instance v1.13.9.
	TalosVersion string
	// Config is the active machine configuration; it has a complete v1alpha1 document.
	Config config.Provider
	// EphemeralDir is the folder that stands for the EPHEMERAL partition (/var). It survives reboots and power cuts,
	// and is emptied when EPHEMERAL is wiped. etcd's data lives in EphemeralDir/lib/etcd.
	EphemeralDir string
	// LogDir takes one log file per child process.
	LogDir string
	// CPUs and MemoryBytes become the Node's capacity.
	CPUs        int
	MemoryBytes uint64
	// MachineID is what the Node reports in status.nodeInfo.machineID, SystemUUID likewise.
	MachineID, SystemUUID string
	// BootID is status.nodeInfo.bootID.
	BootID string
}

// Service is one Talos service as the Services.v1alpha1.talos.dev resource shows it.
type Service struct {
	ID               string
	Running, Healthy bool
	// Unknown is true while the service has no health check result yet.
	Unknown bool
	// State is the text that ServiceList prints: Preparing, Running, Finished, Failed.
	State string
	// Message says what the service waits for, in Talos' words.
	Message string
}

// StaticPod is one static pod of a control plane as the kubelet reports it.
type StaticPod struct {
	Name  string
	Ready bool
}

// Status is a full picture of the workload; each call of the notify function replaces the last.
type Status struct {
	Services   []Service
	StaticPods []StaticPod
	NodeName   string
	// NodeRegistered tells that the Node object exists, NodeReady that its Ready condition is true.
	NodeRegistered, NodeReady bool
	// EtcdMemberID is zero until etcd runs here.
	EtcdMemberID uint64
}

// Factory starts the workload of one boot.
type Factory interface {
	// Start returns at once; the work goes on in goroutines that end when Stop returns. notify may be called from any
	// goroutine, never after Stop has returned.
	Start(m Machine, notify func(Status)) (Runtime, error)
}

// Runtime is the workload of one boot. The methods named after Talos calls return gRPC status errors as Talos does, and
// assume that the caller's role was already checked and that the machine is a control plane where Talos demands it.
type Runtime interface {
	// Bootstrap has the semantics of MachineService.Bootstrap after its role check.
	Bootstrap(ctx context.Context, req *machine.BootstrapRequest) error
	EtcdMemberList(ctx context.Context, req *machine.EtcdMemberListRequest) (*machine.EtcdMembers, error)
	EtcdRemoveMemberByID(ctx context.Context, memberID uint64) error
	EtcdLeaveCluster(ctx context.Context) error
	EtcdForfeitLeadership(ctx context.Context) (string, error)
	EtcdStatus(ctx context.Context) (*machine.EtcdMemberStatus, error)
	EtcdAlarmList(ctx context.Context) ([]*machine.EtcdMemberAlarm, error)
	EtcdAlarmDisarm(ctx context.Context) ([]*machine.EtcdMemberAlarm, error)
	EtcdDefragment(ctx context.Context) error
	// EtcdSnapshot writes a snapshot of the local member.
	EtcdSnapshot(ctx context.Context, w io.Writer) error
	// EtcdRecover stores an uploaded snapshot for a later Bootstrap with recover_etcd.
	EtcdRecover(ctx context.Context, r io.Reader) error
	// Kubeconfig returns an admin kubeconfig (YAML) made from the configuration's Kubernetes CA.
	Kubeconfig(ctx context.Context) ([]byte, error)
	// UpdateConfig takes a configuration that was applied without a reboot.
	UpdateConfig(cfg config.Provider)
	// Stop ends every child. With kill it is a power cut (SIGKILL); else an orderly stop bounded by ctx.
	Stop(ctx context.Context, kill bool)
}
