// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/output"
)

func newList(env *cli.Env) *cobra.Command {
	list := output.NewList("talosconfigpatches", "No patches: every machine has what Ichor renders by itself.")
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List patches",
		Long:    "List patches, as `kubectl get talosconfigpatches` does.\n\nField selectors: metadata.name, spec.target.clusterRef.name.",
		Example: cli.Examples(env, `
			ichor patch list
			ichor patch list -w
		`),
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return list.Run(cmd.Context(), env) },
	}
	list.AddFlags(cmd)
	return cmd
}
