// SPDX-License-Identifier: Apache-2.0

// Ichor manages Talos Linux machines from the command line, through the Kubernetes API. It is the kubectl plugin
// kubectl-ichor too.
package main

//go:generate go run ./internal/reference/generate ../../docs/cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

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

		SetVerbosity: setVerbosity,
	}
	os.Exit(app.Run(ctx, env, os.Args))
}

// setVerbosity sets up klog, through which client-go logs: it is the one thing here that is global. At 0 it is silent; what
// a person needs to know of client-go's troubles, the commands say themselves.
func setVerbosity(level int) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "v": strconv.Itoa(level)} {
		if err := flags.Set(name, value); err != nil {
			return fmt.Errorf("set log option %s: %w", name, err)
		}
	}
	klog.SetOutput(io.Discard)
	if level > 0 {
		klog.SetOutput(os.Stderr)
	}
	return nil
}
