// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func newShow(env *cli.Env) *cobra.Command {
	print := output.NewObjects("")
	cmd := &cobra.Command{
		Use:               "show [NAME]",
		Short:             "Show all about a cluster on one screen",
		Long:              "Show all about a cluster on one screen. Without a name: the only one there is.",
		Args:              cli.AtMost(1, "one cluster"),
		ValidArgsFunction: lookup.CompleteClusters(env),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := print.Check(); err != nil {
				return err
			}
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			return show(cmd.Context(), env, print, name)
		},
	}
	print.AddFlags(cmd)
	return cmd
}

func show(ctx context.Context, env *cli.Env, print *output.Objects, name string) error {
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
	_, err = fmt.Fprint(env.Out, screen.Cluster(cluster, next(env, cluster), env.Now(), env.OutStyle()))
	return err
}

// next is what to type next about a cluster.
func next(env *cli.Env, cluster *v1alpha1.TalosCluster) []string {
	style := env.OutStyle()
	if pending := cluster.Status.Machines.Pending; pending > 0 {
		return []string{screen.Plural(int(pending), "machine waits", "machines wait") + " for a person: " + style.Command(env.Name+" status")}
	}
	if len(cluster.Spec.Discovery.Subnets)+len(cluster.Spec.Discovery.Addresses) == 0 {
		return []string{"no network is scanned for machines yet: " + style.Command(env.Name+" cluster discovery add 10.0.0.0/24")}
	}
	return nil
}
