// SPDX-License-Identifier: Apache-2.0

// Package programs gives the machines of one host the real programs of Kubernetes. It is apart from host because it
// links all of etcd.
package programs

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/kubernetes"
	"maesh.dev/ichor/test/hollow/workload"
)

// Options say how the programs run.
type Options struct {
	// BinDir is the folder with the executable kube.
	BinDir string
	// Pods makes nodes run pods, and control planes schedule them.
	Pods bool
	// Fsync lets etcd flush to disk.
	Fsync bool
	// Log takes what happens to the programs; nil discards it.
	Log *slog.Logger
}

// Workloads gives each machine a factory that fits its CNI setting; their control planes can find each other. The
// executable that calls it must call kubernetes.ChildMain first thing, because it is etcd too.
func Workloads(o Options) (func(fleet.Machine) (workload.Factory, error), error) {
	discovery := kubernetes.NewDiscovery()
	byCNI := map[fleet.CNI]*kubernetes.Factory{}
	for setting, cni := range map[fleet.CNI]kubernetes.CNI{fleet.CNIReady: kubernetes.CNIReady, fleet.CNIAbsent: kubernetes.CNIAbsent} {
		factory, err := kubernetes.New(kubernetes.Options{
			Kube: filepath.Join(o.BinDir, "kube"), Discovery: discovery, CNI: cni, Pods: o.Pods, Fsync: o.Fsync, Logger: o.Log,
		})
		if err != nil {
			return nil, err
		}
		byCNI[setting] = factory
	}
	return func(m fleet.Machine) (workload.Factory, error) {
		m.Complete()
		factory, ok := byCNI[m.CNI]
		if !ok {
			return nil, fmt.Errorf("cni %q: no such setting", m.CNI)
		}
		return factory, nil
	}, nil
}
