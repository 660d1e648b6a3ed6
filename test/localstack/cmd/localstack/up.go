// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/test/localstack"
)

const (
	// startFor bounds the start of a stack. On an idle two-core machine it takes about half a minute.
	startFor = 10 * time.Minute
	// stopFor bounds its end.
	stopFor = 2 * time.Minute
)

func upCommand(dir *string) *cobra.Command {
	var options localstack.Options
	var detach bool
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a stack, or carry on with the one in the folder, and keep it running until Ctrl-C",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			options.StateDir = *dir
			if options.BinDir, err = programs(); err != nil {
				return err
			}
			if detach {
				return upDetached(c.Context(), c.OutOrStdout(), options)
			}
			return up(c.Context(), c.OutOrStdout(), options)
		},
	}
	flags := c.Flags()
	flags.StringVar(&options.FleetFile, "fleet", "", "fleet file that describes the machines; addresses in 127.0.16.0/20 are moved to the stack's range")
	flags.IntVar(&options.Machines, "machines", 0, "how many machines to make: one control plane, the others wait in maintenance mode (6 unless the folder has some)")
	flags.IntVar(&options.APIServers, "apiservers", 1, "how many ichor-apiservers to run, at most 4")
	flags.IntVar(&options.Controllers, "controllers", 1, "how many ichor-controllers to run, at most 4")
	flags.BoolVar(&detach, "detach", false, "return once the stack is ready, and leave it running; `localstack down` ends it")
	c.MarkFlagsMutuallyExclusive("fleet", "machines")
	return c
}

// up runs a stack until ctx is done.
func up(ctx context.Context, out io.Writer, options localstack.Options) error {
	begin := time.Now()
	options.Progress = func(message string) {
		fmt.Fprintf(out, "%6.1fs  %s\n", time.Since(begin).Seconds(), message)
	}
	options.Announce = func(suggestions []localstack.Suggestion) { show(out, suggestions) }
	stack, err := start(ctx, options)
	if err != nil {
		return err
	}
	defer func() {
		fmt.Fprintln(out, "ending the stack")
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopFor)
		defer cancel()
		if err := stack.Stop(stopping); err != nil {
			fmt.Fprintln(out, "end the stack:", err)
		}
	}()
	<-ctx.Done()
	return nil
}

func start(ctx context.Context, options localstack.Options) (*localstack.Stack, error) {
	ctx, cancel := context.WithTimeout(ctx, startFor)
	defer cancel()
	return localstack.Start(ctx, options)
}

// show prints what to try next, ready to be copied. Lines are comments or commands.
func show(out io.Writer, suggestions []localstack.Suggestion) {
	fmt.Fprint(out, "\nTry in another terminal:\n")
	for _, s := range suggestions {
		fmt.Fprintf(out, "\n# %s\n%s\n", s.Text, s.Command)
	}
	fmt.Fprint(out, "\nCtrl-C here (or `localstack down`) ends everything; the machines keep their disks.\n")
}
