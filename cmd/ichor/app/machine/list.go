// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/output"
)

func newList(env *cli.Env) *cobra.Command {
	list := output.NewList("talosmachines",
		"No machines. Boot one from Talos' installation media in a network that is scanned; `"+env.Name+" cluster discovery list` shows which are.")
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List machines",
		Long: "List machines, as `kubectl get talosmachines` does.\n\n" +
			"Field selectors: metadata.name, spec.approvalState, spec.clusterRef.name, spec.role, status.stage.",
		Example: cli.Examples(env, `
			# All machines, with identity and node
			ichor machine list -o wide

			# Those that wait for a person
			ichor machine list --field-selector spec.approvalState=pending

			# Each change as it comes
			ichor machine list -w
		`),
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return list.Run(cmd.Context(), env) },
	}
	list.AddFlags(cmd)
	return cmd
}
