// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/approvalplan"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/proposal"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// errApproved is why an approved machine isn't planned for.
var errApproved = errors.New("it is approved already")

type planOptions struct {
	env     *cli.Env
	targets targets
	role    string
}

func newPlan(env *cli.Env) *cobra.Command {
	options := &planOptions{env: env}
	cmd := &cobra.Command{
		Use:   "plan [NAME...]",
		Short: "Write a plan for pending machines, to edit and to approve with approve -f",
		Long: `Write a plan for machines that wait in maintenance mode, with what is proposed for each and its disks and network
interfaces in comments. Nothing is changed. Edit it, keep it, and approve all of it with "machine approve -f".

An install disk is left open where there is a choice: the plan is refused until it is filled in.

` + namesHelp,
		Example: cli.Examples(env, `
			# All machines of a rack: the control planes that are missing, the others workers
			ichor machine plan -l rack=1 > rack1.yaml

			# Two machines by their serial numbers
			ichor machine plan Q6RL12 Q6RL13 --role worker > workers.yaml
		`),
		ValidArgsFunction: lookup.CompleteMachines(env, isPending),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := options.targets.check(cmd, args); err != nil {
				return err
			}
			return options.run(cmd.Context(), args)
		},
	}
	cmd.Flags().StringVar(&options.role, "role", "", "controlplane or worker, for all of them.")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"controlplane", "worker"}, cobra.ShellCompDirectiveNoFileComp))
	options.targets.addFlags(cmd)
	return cmd
}

func (o *planOptions) run(ctx context.Context, args []string) error {
	var role v1alpha1.MachineRole
	if o.role != "" {
		var err error
		if role, err = proposal.ParseRole(o.role); err != nil {
			return cli.Usagef("--role: %w", err)
		}
	}
	client, err := o.env.Client()
	if err != nil {
		return err
	}
	machines, err := listMachines(ctx, client)
	if err != nil {
		return err
	}
	clusters, err := client.IchorV1alpha1().TalosClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	chosen, err := o.targets.pick(machines, args)
	if err != nil {
		return err
	}
	facts := approvalplan.Facts{
		Machines: machines, Clusters: clusters.Items,
		Blocked: func(machine *v1alpha1.TalosMachine) error {
			if machine.Spec.ApprovalState == v1alpha1.ApprovalApproved {
				return errApproved
			}
			return blocked(machine, o.env.Name)
		},
	}
	return approvalplan.Write(o.env.Out, approvalplan.Drafts(chosen, facts, role), facts)
}
