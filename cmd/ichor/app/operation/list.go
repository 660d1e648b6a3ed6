// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/output"
)

func newList(env *cli.Env) *cobra.Command {
	list := output.NewList("talosoperations",
		"No operations. `"+env.Name+" machine reboot` and `"+env.Name+" machine config rollout` start one.")
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List operations",
		Long: "List operations, as `kubectl get talosoperations` does: those that go on, and those that are over.\n\n" +
			"Field selectors: metadata.name, spec.clusterRef.name, status.phase.",
		Example: cli.Examples(env, `
			# The newest last
			ichor operation list --sort-by .metadata.creationTimestamp

			# Those that wait for a person
			ichor operation list --field-selector status.phase=Paused
		`),
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return list.Run(cmd.Context(), env) },
	}
	list.AddFlags(cmd)
	cmd.Flags().Lookup("field-selector").Usage = "Only those with these field values, for instance status.phase=Paused."
	return cmd
}
