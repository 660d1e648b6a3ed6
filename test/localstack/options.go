// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"maesh.dev/ichor/pkg/bootstrap"
	"maesh.dev/ichor/test/localstack/loopback"
)

const (
	// defaultMachines is the size of a fleet when none is asked for: one control plane and five that wait.
	defaultMachines = 6
	// maxReplicas is how many ichor-apiservers, and how many controllers, have an address in a stack's range.
	maxReplicas = 4
	// defaultInterval is the time between two scans for machines. Short, because somebody waits for them to appear.
	defaultInterval = 15 * time.Second
)

// Versions that a stack runs; hollow machines know these.
const (
	TalosVersion      = "v1.13.9"
	KubernetesVersion = "v1.36.6"
	// newerMedia is what the last machine of a fleet booted from.
	newerMedia = "v1.14.0"
)

// ClusterName is the name of the TalosCluster of every stack.
const ClusterName = "local"

// Options say what stack to run.
type Options struct {
	// StateDir is the folder of the stack. One that was used before carries on with its machines.
	StateDir string
	// BinDir holds hollow, kube, ichor-apiserver, ichor-controller and ichor.
	BinDir string
	// FleetFile describes the machines; empty makes Machines of them. The first one in maintenance mode becomes the
	// first control plane. Addresses in 127.0.16.0/20 are moved to the stack's own range.
	FleetFile string
	// Machines is how many to make without a FleetFile; 0 makes 6 in a new folder, and takes those of a used one.
	Machines int
	// APIServers and Controllers are how many of each to run, 1 if zero, at most 4.
	APIServers, Controllers int
	// ControllerArgs and APIServerArgs are further arguments of the controllers and of the ichor-apiservers.
	ControllerArgs, APIServerArgs []string
	// NoAuditLog leaves the audit logs where the control planes write them, with every request in them, by Talos' own policy:
	// with a large fleet, gathering them takes a good part of a CPU.
	NoAuditLog bool
	// NoPods leaves out what schedules and runs pods, which takes a program for each control plane and a watch for each node.
	NoPods bool
	// Interval is the time between two scans for machines, 15 s if zero.
	Interval time.Duration
	// Bootstrap brings the first node up; nil is bootstrap.Run in this process.
	Bootstrap func(ctx context.Context, config bootstrap.Config) error
	// Progress is told what happens, for people. It may be nil; it is called from one goroutine at a time.
	Progress func(message string)
	// Announce is told what a person can try next, just before the file "ready" is written. It may be nil.
	Announce func([]Suggestion)
}

// binaries are the programs that a stack needs.
var binaries = []string{"hollow", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "ichor-apiserver", "ichor-controller", "ichor"}

// complete fills in defaults and tells all faults at once.
func (o *Options) complete() error {
	setDefault(&o.APIServers, 1)
	setDefault(&o.Controllers, 1)
	setDefault(&o.Interval, defaultInterval)
	if o.Bootstrap == nil {
		o.Bootstrap = func(ctx context.Context, config bootstrap.Config) error {
			_, err := bootstrap.Run(ctx, config)
			return err
		}
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Announce == nil {
		o.Announce = func([]Suggestion) {}
	}
	var faults []error
	if o.StateDir == "" {
		faults = append(faults, errors.New("state folder: not given"))
	}
	if o.Machines < 0 || o.Machines > loopback.Capacity {
		faults = append(faults, fmt.Errorf("machines: %d is not within 1 to %d", o.Machines, loopback.Capacity))
	}
	for name, value := range map[string]int{"apiservers": o.APIServers, "controllers": o.Controllers} {
		if value < 1 || value > maxReplicas {
			faults = append(faults, fmt.Errorf("%s: %d is not within 1 to %d", name, value, maxReplicas))
		}
	}
	for _, name := range binaries {
		if info, err := os.Stat(filepath.Join(o.BinDir, name)); err != nil || info.IsDir() {
			faults = append(faults, fmt.Errorf("program %s: not in %s; run `make build`", name, o.BinDir))
		}
	}
	return errors.Join(faults...)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
