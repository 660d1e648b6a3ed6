// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
)

func newDiscoveryList(env *cli.Env) *cobra.Command {
	print := output.NewObjects("")
	var cluster string
	cmd := &cobra.Command{
		Use:     "list [CLUSTER]",
		Aliases: []string{"ls"},
		Short:   "Show where machines are looked for, and what was met",
		Long: "Show where machines are looked for, and what the last scan met: machines in maintenance mode, machines that are configured already, " +
			"and what isn't Talos. With -o it prints the cluster object.",
		Args:              cli.AtMost(1, "one cluster"),
		ValidArgsFunction: lookup.CompleteClusters(env),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := named(args, &cluster); err != nil {
				return err
			}
			if err := print.Check(); err != nil {
				return err
			}
			return listDiscovery(cmd.Context(), env, print, cluster)
		},
	}
	addClusterFlag(cmd, env, &cluster)
	print.AddFlags(cmd)
	return cmd
}

func listDiscovery(ctx context.Context, env *cli.Env, print *output.Objects, name string) error {
	client, err := env.Client()
	if err != nil {
		return err
	}
	cluster, err := lookup.FetchCluster(ctx, client, name)
	if err != nil {
		return err
	}
	if print.Asked() {
		return print.Print(env, cluster, "")
	}
	style := env.OutStyle()
	lines := append([]string{style.Heading(cluster.Name)}, screen.Discovery(cluster, style)...)
	_, err = fmt.Fprintln(env.Out, strings.Join(lines, "\n"))
	return err
}
