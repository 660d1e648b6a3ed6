// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/operate"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func newReboot(env *cli.Env) *cobra.Command {
	powerCycle := false
	start := operate.NewStart(env, operate.Kind{
		Name: "reboot", Verb: "Reboot",
		Set: func(spec *v1alpha1.TalosOperationSpec) {
			spec.Reboot = &v1alpha1.Reboot{Mode: v1alpha1.RebootDefault}
			if powerCycle {
				spec.Reboot.Mode = v1alpha1.RebootPowerCycle
			}
		},
	})
	cmd := &cobra.Command{
		Use:   "reboot NAME... | --all | -l SELECTOR",
		Short: "Reboot machines one at a time, drained, and never at the cost of etcd's quorum",
		Long: "Reboot machines one at a time: each is drained, rebooted, and back before the next is begun, control planes first. " + startHelp + "\n\n" +
			operate.PlanHelp + "\n\n" + namesHelp,
		Example: cli.Examples(env, `
			# What would be done, in which order?
			ichor machine reboot --all --plan

			ichor machine reboot worker-3
			ichor machine reboot -l rack=1 --power-cycle
		`),
		ValidArgsFunction: lookup.CompleteMachines(env, isApproved),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := start.Check(cmd, args); err != nil {
				return err
			}
			return start.Run(cmd.Context(), args)
		},
	}
	cmd.Flags().BoolVar(&powerCycle, "power-cycle", false, "Go through the firmware, where Talos would use kexec.")
	start.AddFlags(cmd)
	return cmd
}

// startHelp is what verbs that start an operation say about it.
const startHelp = "What it does is a TalosOperation, which goes on without this command and stops where something isn't as it should be. " +
	"One with gates or windows of your own is made with kubectl.\n\n" + operate.EndsHelp
