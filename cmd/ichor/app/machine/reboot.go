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
		Long: "Reboot machines one at a time: each is drained, rebooted, and back before the next is begun, control planes first. " + operate.StartHelp + "\n\n" +
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
