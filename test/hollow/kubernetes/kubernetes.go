// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"maesh.dev/ichor/test/hollow/kubernetes/controlplane"
	"maesh.dev/ichor/test/hollow/workload"
)

// CNI says whether nodes have a working network plugin.
type CNI string

const (
	// CNIReady makes every node Ready as soon as its kubelet runs.
	CNIReady CNI = "Ready"
	// CNIAbsent keeps every node NotReady, as before a network plugin is installed.
	CNIAbsent CNI = "Absent"
)

// Options are the same for every node of a process.
type Options struct {
	// Kube is the executable that is kube-apiserver, kube-controller-manager and kube-scheduler, told by its first argument.
	Kube string
	// Etcd is the executable, with leading arguments, that behaves as etcd. By default it is this executable with
	// arguments that ChildMain understands.
	Etcd []string
	// Discovery is shared by the nodes that must find each other; by default the factory has its own.
	Discovery *Discovery
	// CNI is CNIReady by default.
	CNI CNI
	// AuditLog returns the path of a control plane's audit log unless its configuration names one; by default audit.log in
	// the machine's LogDir.
	AuditLog func(workload.Machine) string
	// RunDir returns the folder that takes a machine's keys and configuration files. It is emptied when the workload starts
	// and stops. By default it is run-NAME beside the machine's EphemeralDir.
	RunDir func(workload.Machine) string
	// Pods makes nodes run pods, and control planes the scheduler and what makes pods: a program more for each control plane
	// and a watch for each node. Without it, a pod is what the API says of it.
	Pods bool
	// Controllers are started in the kube-controller-manager beside the few that every story needs.
	Controllers []string
	// Fsync lets etcd flush to disk. Without it a node's power cut (SIGKILL) loses nothing, one of the host may.
	Fsync bool
	// CRIAfter is how long a node takes until its container runtime, and with it everything else, is up.
	CRIAfter time.Duration
	// LeaseEvery overrides how often kubelets renew their Lease.
	LeaseEvery time.Duration
	// Logger gets what happens to the workloads; nothing is logged by default.
	Logger *slog.Logger
}

// Factory starts workloads.
type Factory struct {
	options Options
}

var _ workload.Factory = (*Factory)(nil)

// New checks the options and fills in defaults.
func New(options Options) (*Factory, error) {
	if options.Kube == "" {
		return nil, errors.New("hollow kubernetes: no path to the kube executable; build it with make and pass its path")
	}

	if info, err := os.Stat(options.Kube); err != nil || info.IsDir() {
		return nil, fmt.Errorf("hollow kubernetes: no kube executable at %s; build it first", options.Kube)
	}

	if len(options.Etcd) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("hollow kubernetes: find this executable to run it as etcd: %w", err)
		}

		options.Etcd = []string{self, childCommand, childEtcd}
	}

	switch options.CNI {
	case "":
		options.CNI = CNIReady
	case CNIReady, CNIAbsent:
	default:
		return nil, fmt.Errorf("hollow kubernetes: CNI is %q, want %s or %s", options.CNI, CNIReady, CNIAbsent)
	}

	if options.Pods {
		options.Controllers = slices.Concat(controlplane.PodControllers, options.Controllers)
	}

	if options.Discovery == nil {
		options.Discovery = NewDiscovery()
	}

	if options.AuditLog == nil {
		options.AuditLog = func(m workload.Machine) string { return filepath.Join(m.LogDir, "audit.log") }
	}

	if options.RunDir == nil {
		options.RunDir = func(m workload.Machine) string {
			return filepath.Join(filepath.Dir(filepath.Clean(m.EphemeralDir)), "run-"+m.Name)
		}
	}

	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}

	return &Factory{options: options}, nil
}

// Start begins the workload of one boot. notify is called from one goroutine of the workload, one call at a time; it must
// not call the runtime's Stop, which waits for it.
func (f *Factory) Start(m workload.Machine, notify func(workload.Status)) (workload.Runtime, error) {
	n, err := newNode(f.options, m, notify)
	if err != nil {
		return nil, err
	}

	return n, nil
}
