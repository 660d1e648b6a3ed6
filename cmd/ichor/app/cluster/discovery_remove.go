// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
)

func newDiscoveryRemove(env *cli.Env) *cobra.Command {
	edit := &discoveryEdit{
		env: env, print: output.NewObjects("configured"), needed: isListed, change: remove,
		verbed: "removed", already: "isn't looked at, unchanged",
	}
	cmd := &cobra.Command{
		Use:   "remove CIDR|ADDRESS...",
		Short: "Stop looking in subnets and at addresses",
		Long:  "Stop looking for machines in subnets and at addresses. Machines that were found there stay.",
		Example: cli.Examples(env, `
			ichor cluster discovery remove 10.0.0.0/24
		`),
		Args:              cli.AtLeast(1, "a subnet or an address"),
		ValidArgsFunction: completePlaces(env, &edit.cluster),
		RunE:              func(cmd *cobra.Command, args []string) error { return edit.run(cmd.Context(), args) },
	}
	edit.addFlags(cmd)
	return cmd
}

// completePlaces completes what is looked at now.
func completePlaces(env *cli.Env, name *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		client, err := env.Client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		cluster, err := lookup.FetchCluster(cmd.Context(), client, *name)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		places := append([]string{}, cluster.Spec.Discovery.Addresses...)
		for _, subnet := range cluster.Spec.Discovery.Subnets {
			places = append(places, subnet.CIDR)
		}
		return places, cobra.ShellCompDirectiveNoFileComp
	}
}
