// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

type rejectOptions struct {
	env     *cli.Env
	targets targets
	reason  string
	yes     bool
	dryRun  cli.DryRun
	print   *output.Objects
	asker   func() asker
}

func newReject(env *cli.Env) *cobra.Command {
	options := &rejectOptions{env: env, print: output.NewObjects("rejected"), asker: func() asker { return newAsker(env) }}
	cmd := &cobra.Command{
		Use:   "reject [NAME...]",
		Short: "Reject machines: leave them alone, and out of the lists of what waits",
		Long: "Reject machines: Ichor leaves them alone, and they wait for nobody any more. Deleting the object of a rejected machine lets it be found again.\n\n" +
			namesHelp,
		Example: cli.Examples(env, `
			ichor machine reject 10.0.0.77 --reason "belongs to the lab"
		`),
		ValidArgsFunction: lookup.CompleteMachines(env, isPending),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := options.targets.check(cmd, args); err != nil {
				return err
			}
			return options.run(cmd.Context(), args)
		},
	}
	cmd.Flags().StringVar(&options.reason, "reason", "", "A note that is kept with the rejection.")
	cmd.Flags().BoolVarP(&options.yes, "yes", "y", false, "Don't ask whether the machines that --all or -l found are meant.")
	options.targets.addFlags(cmd)
	options.dryRun.AddFlag(cmd)
	options.print.AddFlags(cmd)
	return cmd
}

func (o *rejectOptions) run(ctx context.Context, args []string) error {
	for _, err := range []error{o.print.Check(), o.dryRun.Check()} {
		if err != nil {
			return err
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
	picked, err := o.targets.pick(machines, args)
	if err != nil {
		return err
	}
	if err := o.confirm(ctx, picked); err != nil {
		return err
	}
	outcome := &results{env: o.env, of: len(picked)}
	for _, machine := range picked {
		outcome.add(machine.Name, o.reject(ctx, client, machine))
	}
	return outcome.err()
}

// confirm shows which machines a selector found; machines that were named need no second word.
func (o *rejectOptions) confirm(ctx context.Context, picked []*v1alpha1.TalosMachine) error {
	if !o.targets.bySelector() || o.yes {
		return nil
	}
	if !o.env.CanAsk() {
		return cli.Usagef("%s fit, and nobody can be asked here whether those are meant: name them, or say --yes", screen.Plural(len(picked), "machine", "machines"))
	}
	for _, machine := range picked {
		o.env.Infof("  %s  %s", machine.Name, screen.Model(machine.Status.Inventory))
	}
	yes, err := o.asker().Confirm(ctx, fmt.Sprintf("Reject %s?", screen.Plural(len(picked), "machine", "machines")))
	if err != nil {
		return left(err)
	}
	if !yes {
		return cli.Cancelled()
	}
	return nil
}

func (o *rejectOptions) reject(ctx context.Context, client versioned.Interface, machine *v1alpha1.TalosMachine) error {
	machines := client.IchorV1alpha1().TalosMachines()
	var rejected *v1alpha1.TalosMachine
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := machines.Get(ctx, machine.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		switch now.Spec.ApprovalState {
		case v1alpha1.ApprovalApproved:
			return cli.WithCode(cli.ExitBlocked, errors.New("it is approved"+approvedBy(now)+", and that can't be taken back: to let it go, delete its object"))
		case v1alpha1.ApprovalRejected:
			o.env.Infof("%s is rejected already; unchanged", screen.MachineTitle(now))
			return nil
		}
		now.Spec.ApprovalState = v1alpha1.ApprovalRejected
		now.Spec.Approval = &v1alpha1.MachineApproval{MaintenanceFingerprint: now.Status.MaintenanceFingerprint, Reason: o.reason}
		rejected, err = machines.UpdateApproval(ctx, now.Name, now, metav1.UpdateOptions{DryRun: o.dryRun.Options(), FieldManager: cli.FieldManager})
		return err
	})
	if err != nil || rejected == nil {
		return err
	}
	return o.print.Print(o.env, rejected, o.dryRun.Note())
}
