// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/test/hollow/control"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/host"
	"maesh.dev/ichor/test/hollow/kubernetes"
	"maesh.dev/ichor/test/hollow/workload"
)

// socketName is the control socket's in the state folder.
const socketName = "control.sock"

// runOptions are the flags of run.
type runOptions struct {
	fleetFile, state, kube string
	fsync                  bool
	verbose                bool
}

func runCommand() *cobra.Command {
	o := &runOptions{}
	c := &cobra.Command{
		Use: "run --fleet FILE --state DIR [--kube PATH]", Short: "Host the machines of a fleet file until interrupted", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c.Flags().StringVar(&o.fleetFile, "fleet", "", "the fleet file (required)")
	c.Flags().StringVar(&o.state, "state", "", "folder for the machines' disks and the control socket (required)")
	c.Flags().StringVar(&o.kube, "kube", "", "the executable with kube-apiserver and kube-controller-manager; without it machines get no Kubernetes")
	c.Flags().BoolVar(&o.fsync, "fsync", false, "let etcd flush to disk")
	c.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "log more")
	for _, name := range []string{"fleet", "state"} {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
	return c
}

func (o *runOptions) run(ctx context.Context, out, errOut io.Writer) error {
	f, err := fleet.Load(o.fleetFile)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.state, 0o700); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: level}))
	workloads, err := o.workloads(log)
	if err != nil {
		return err
	}
	h, err := host.Start(host.Options{Fleet: f, Dir: o.state, Workload: workloads, Log: log})
	if err != nil {
		return err
	}
	defer h.Close()
	server, err := control.Listen(filepath.Join(o.state, socketName), h)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "hosting %d machines; Ctrl-C ends them all\n", len(f.Machines)); err != nil {
		return errors.Join(err, server.Close())
	}
	<-ctx.Done()
	return server.Close()
}

// workloads gives each machine a factory that fits its CNI setting; all share one discovery.
func (o *runOptions) workloads(log *slog.Logger) (func(fleet.Machine) (workload.Factory, error), error) {
	if o.kube == "" {
		return nil, nil
	}
	discovery := kubernetes.NewDiscovery()
	byCNI := map[fleet.CNI]workload.Factory{}
	for setting, cni := range map[fleet.CNI]kubernetes.CNI{fleet.CNIReady: kubernetes.CNIReady, fleet.CNIAbsent: kubernetes.CNIAbsent} {
		factory, err := kubernetes.New(kubernetes.Options{Kube: o.kube, Discovery: discovery, CNI: cni, Fsync: o.fsync, Logger: log})
		if err != nil {
			return nil, err
		}
		byCNI[setting] = factory
	}
	return func(m fleet.Machine) (workload.Factory, error) {
		factory, ok := byCNI[m.CNI]
		if !ok {
			return nil, fmt.Errorf("cni %q: no such setting", m.CNI)
		}
		return factory, nil
	}, nil
}
