// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/output"
)

func newList(env *cli.Env) *cobra.Command {
	list := output.NewList("talosclusters", "No clusters. `kubectl explain taloscluster` tells how to describe one.")
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List clusters",
		Long:    "List clusters, as `kubectl get talosclusters` does.",
		Args:    cli.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return list.Run(cmd.Context(), env) },
	}
	list.AddFlags(cmd)
	return cmd
}
