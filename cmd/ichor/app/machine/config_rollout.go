// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/operate"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func newConfigRollout(env *cli.Env) *cobra.Command {
	start := operate.NewStart(env, operate.Kind{
		Name: "rollout", Verb: "Reboot, with the configuration that waits for it,",
		Set:     func(spec *v1alpha1.TalosOperationSpec) { spec.ConfigRollout = &v1alpha1.ConfigRollout{} },
		Needs:   waitsForReboot,
		Nothing: "No machine's configuration waits for a reboot; there is nothing to do.",
	})
	cmd := &cobra.Command{
		Use:   "rollout NAME... | --all | -l SELECTOR",
		Short: "Bring machines the configuration that takes effect at a reboot only (an operation of type configRollout)",
		Long: "Bring machines the configuration that takes effect at a reboot only: those that wait for it are drained and rebooted one at a time, control planes first. " +
			operate.StartHelp + "\n\n" + operate.PlanHelp + "\n\n" + namesHelp,
		Example: cli.Examples(env, `
			# Which machines wait, and in which order would they reboot?
			ichor machine config rollout --all --plan

			ichor machine config rollout --all
		`),
		ValidArgsFunction: lookup.CompleteMachines(env, waitsForReboot),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := start.Check(cmd, args); err != nil {
				return err
			}
			return start.Run(cmd.Context(), args)
		},
	}
	start.AddFlags(cmd)
	return cmd
}

// waitsForReboot tells whether a machine has a configuration that takes effect at a reboot only.
func waitsForReboot(machine *v1alpha1.TalosMachine) bool {
	return machine.Status.Config != nil && machine.Status.Config.PendingReboot
}
