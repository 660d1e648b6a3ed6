// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
)

type showOptions struct {
	env   *cli.Env
	print *output.Objects
}

func newShow(env *cli.Env) *cobra.Command {
	options := &showOptions{env: env, print: output.NewObjects("")}
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show all about an operation on one screen, and what to do next",
		Long: "Show all about an operation on one screen: its phase and why, who asked for what, the plan with its checks and risks, " +
			"where each machine is, and what to do next.",
		Example: cli.Examples(env, `
			ichor operation show reboot-x7k2p
		`),
		Args:              cli.Exactly(1, "one operation"),
		ValidArgsFunction: lookup.CompleteOperations(env, 1, nil),
		RunE:              func(cmd *cobra.Command, args []string) error { return options.run(cmd.Context(), args[0]) },
	}
	options.print.AddFlags(cmd)
	return cmd
}

func (o *showOptions) run(ctx context.Context, name string) error {
	if err := o.print.Check(); err != nil {
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
	if o.print.Asked() {
		return o.print.Print(o.env, operation, "")
	}
	titles := lookup.Titles(ctx, client)
	_, err = fmt.Fprint(o.env.Out, screen.Operation(operation, titles, o.env.Name, o.env.Now(), o.env.OutStyle()))
	return err
}
