// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/operate"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

func newShutdown(env *cli.Env) *cobra.Command {
	consent := ""
	var start *operate.Start
	start = operate.NewStart(env, operate.Kind{
		Name: "shutdown", Verb: "Power off",
		Set: func(spec *v1alpha1.TalosOperationSpec) {
			spec.Shutdown = &v1alpha1.Shutdown{}
			if start.All() {
				spec.Shutdown.Consent, spec.Machines = consent, nil
			}
		},
		Judge: func(_ context.Context, _ versioned.Interface, cluster string, _ []*v1alpha1.TalosMachine) error {
			if start.All() && consent != cluster {
				return cli.Usagef("the whole cluster %s goes down, and nothing but its machines' power buttons brings it back: say --consent %s if that is meant", cluster, cluster)
			}
			return nil
		},
		Manner: func() string {
			if start.All() {
				return "workers first, then all control planes"
			}
			return ""
		},
	})
	cmd := &cobra.Command{
		Use:   "shutdown NAME... | --all --consent CLUSTER | -l SELECTOR",
		Short: "Power machines off: some, drained one at a time, or a whole cluster",
		Long: "Power machines off. Machines that are named, or found by -l, go one at a time: each is drained, and no control plane goes that etcd's quorum needs. " +
			"They come back when somebody powers them on.\n\nWith --all the whole cluster goes: workers first, then the control planes, without draining, as pods have no other " +
			"place. The API goes with them, so watching ends with an error; when the cluster is powered on again, the operation is found finished.\n\n" +
			operate.StartHelp + "\n\n" + operate.PlanHelp + "\n\n" + namesHelp,
		Example: cli.Examples(env, `
			ichor machine shutdown worker-3
			ichor machine shutdown --all --consent prod
		`),
		ValidArgsFunction: lookup.CompleteMachines(env, isApproved),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := start.Check(cmd, args); err != nil {
				return err
			}
			return start.Run(cmd.Context(), args)
		},
	}
	cmd.Flags().StringVar(&consent, "consent", "", "The name of the cluster, typed once more, where all of it goes down.")
	start.AddFlags(cmd)
	return cmd
}
