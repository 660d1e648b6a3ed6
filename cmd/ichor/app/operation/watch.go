// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/operate"
	"maesh.dev/ichor/cmd/ichor/internal/progress"
)

type watchOptions struct {
	env  *cli.Env
	wait progress.Wait
}

func newWatch(env *cli.Env) *cobra.Command {
	options := &watchOptions{env: env}
	cmd := &cobra.Command{
		Use:   "watch NAME",
		Short: "Follow an operation to its end, machine by machine",
		Long: "Follow an operation to its end, machine by machine: drawn anew on a terminal, elsewhere a line for each step that begins or ends.\n\n" +
			operate.EndsHelp,
		Example: cli.Examples(env, `
			ichor operation watch reboot-x7k2p
		`),
		Args:              cli.Exactly(1, "one operation"),
		ValidArgsFunction: lookup.CompleteOperations(env, 1, isOpen),
		RunE:              func(cmd *cobra.Command, args []string) error { return options.run(cmd.Context(), args[0]) },
	}
	options.wait.AddTimeout(cmd, operate.Timeout)
	return cmd
}

func (o *watchOptions) run(ctx context.Context, name string) error {
	if err := o.wait.Check(); err != nil {
		return err
	}
	client, err := o.env.Client()
	if err != nil {
		return err
	}
	operation, err := fetch(ctx, client, name)
	if err != nil {
		return err
	}
	ended, err := operate.Follow(ctx, o.env, client, &o.wait, operation.Name)
	if err == nil {
		operate.Tell(o.env, ended)
	}
	return err
}
