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
	"maesh.dev/ichor/test/hollow/host/programs"
)

// runOptions are the flags of run.
type runOptions struct {
	fleetFile, state, control, bin string
	pods, fsync, verbose           bool
}

func runCommand() *cobra.Command {
	o := &runOptions{}
	c := &cobra.Command{
		Use: "run --fleet FILE --state DIR [--control SOCKET] [--bin DIR]", Args: cobra.NoArgs,
		Short: "Host the machines of a fleet file until interrupted",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c.Flags().StringVar(&o.fleetFile, "fleet", "", "the fleet file (required)")
	c.Flags().StringVar(&o.state, "state", "", "folder for the machines' disks (required)")
	c.Flags().StringVar(&o.control, "control", "", "the control `SOCKET` (default hollow.sock in the state folder)")
	c.Flags().StringVar(&o.bin, "bin", "", "folder with the executable kube; without it machines get no Kubernetes")
	c.Flags().BoolVar(&o.pods, "pods", false, "let nodes run pods, and control planes schedule them")
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
	state, err := filepath.Abs(o.state)
	if err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	options := host.Options{Fleet: f, Dir: state, Log: o.logger(errOut)}
	if o.bin != "" {
		options.Workload, err = programs.Workloads(programs.Options{BinDir: o.bin, Pods: o.pods, Fsync: o.fsync, Log: options.Log})
		if err != nil {
			return err
		}
	}
	socket := o.control
	if socket == "" {
		socket = filepath.Join(state, "hollow.sock")
	}
	// Whoever holds the socket may touch the folder, so it comes first.
	listener, err := control.Listen(socket)
	if err != nil {
		return err
	}
	h, err := host.Start(options)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	// The machines end last: after the socket no command can switch one on again.
	defer h.Close()
	server := control.Serve(listener, h)
	if _, err := fmt.Fprintf(out, "hosting %d machines, controlled by %s; Ctrl-C ends them all\n", len(f.Machines), socket); err != nil {
		return errors.Join(err, server.Close())
	}
	<-ctx.Done()
	return server.Close()
}

func (o *runOptions) logger(w io.Writer) *slog.Logger {
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}
