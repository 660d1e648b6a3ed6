// SPDX-License-Identifier: Apache-2.0

// Command localstack runs all of Ichor on this machine's loopback addresses, with hollow machines.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/test/localstack/state"
)

// interrupted is the exit status after Ctrl-C before the stack was up.
const interrupted = 130

// errNotReady makes status exit with 1 without another word.
var errNotReady = errors.New("the stack is not ready")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := command().ExecuteContext(ctx)
	switch {
	case err == nil:
	case errors.Is(err, errNotReady):
		os.Exit(1)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		os.Exit(interrupted)
	default:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "localstack",
		Short: "All of Ichor on loopback addresses, with hollow machines",
		Long: "localstack runs hollow Talos machines, a real Kubernetes control plane on one of them, ichor-apiserver behind\n" +
			"the aggregation layer and ichor-controller. Several stacks run side by side, each in a folder of its own.",
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	dir := root.PersistentFlags().String("state", ".local", "folder of the stack: kubeconfigs, logs, and the machines' disks")
	root.AddCommand(upCommand(dir), statusCommand(dir), downCommand(dir), envCommand(dir))
	return root
}

// existing is the folder of a stack that was started before.
func existing(dir string) (state.Dir, error) {
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("no stack in %s: %w; start one with `localstack up`", dir, err)
	}
	return state.Open(dir)
}

// programs is the folder this program is in; the others are beside it.
func programs() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the other programs: %w", err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", fmt.Errorf("find the other programs: %w", err)
	}
	return filepath.Dir(self), nil
}
