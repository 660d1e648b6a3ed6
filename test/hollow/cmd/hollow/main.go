// SPDX-License-Identifier: Apache-2.0

// Command hollow hosts hollow Talos machines on loopback addresses.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/test/hollow/kubernetes"
)

func main() {
	// As a child of itself this executable is etcd.
	if handled, code := kubernetes.ChildMain(os.Args); handled {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := &cobra.Command{
		Use: "hollow", Short: "Hollow Talos machines on loopback addresses", SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(runCommand(), ctlCommand(), fleetCommand())
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hollow:", err)
		os.Exit(1)
	}
}
