// SPDX-License-Identifier: Apache-2.0

// Ichor manages Talos Linux machines from the command line, through the Kubernetes API. It is the kubectl plugin
// kubectl-ichor too.
package main

//go:generate go run ./internal/reference/generate ../../docs/cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // the sign-in methods that kubeconfigs may name

	"maesh.dev/ichor/cmd/ichor/app"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel(cli.ErrInterrupted)
		signal.Stop(signals) // a second Ctrl-C ends the program at once
	}()
	env := &cli.Env{
		IOStreams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		Terminal:  cli.ProcessTerminal(),
		Now:       time.Now,
	}
	os.Exit(app.Run(ctx, env, os.Args))
}
