// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/operate"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/overview"
	"maesh.dev/ichor/cmd/ichor/internal/progress"
	"maesh.dev/ichor/cmd/ichor/internal/prompt"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

type cancelOptions struct {
	env    *cli.Env
	yes    bool
	wait   progress.Wait
	dryRun cli.DryRun
	print  *output.Objects
}

func newCancel(env *cli.Env) *cobra.Command {
	options := &cancelOptions{env: env, print: output.NewObjects("cancel requested")}
	cmd := &cobra.Command{
		Use:   "cancel NAME",
		Short: "End an operation, and put back what it put aside",
		Long: "End an operation. A machine on its way through a reboot is waited for, and a Node that the operation cordoned is uncordoned; machines that are done stay as they are. " +
			"It can't be taken back. Who asked, and when, is recorded by the server.\n\n" +
			"With --wait the exit status is 0 when the operation is Cancelled, and 1 when it had come to another end before.",
		Example: cli.Examples(env, `
			ichor operation cancel reboot-x7k2p
		`),
		Args:              cli.Exactly(1, "one operation"),
		ValidArgsFunction: lookup.CompleteOperations(env, 1, isOpen),
		RunE:              func(cmd *cobra.Command, args []string) error { return options.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().BoolVarP(&options.yes, "yes", "y", false, "Don't ask.")
	options.wait.AddFlags(cmd, "the operation has ended", operate.Timeout)
	options.dryRun.AddFlag(cmd)
	options.print.AddFlags(cmd)
	return cmd
}

func (o *cancelOptions) run(ctx context.Context, name string) error {
	for _, err := range []error{o.print.Check(), o.dryRun.Check(), o.wait.Check()} {
		if err != nil {
			return err
		}
	}
	client, err := o.env.Client()
	if err != nil {
		return err
	}
	operation, err := fetch(ctx, client, name)
	if err != nil {
		return err
	}
	switch {
	case operation.Status.Phase == v1alpha1.OperationCancelled:
		return o.print.PrintUnchanged(o.env, operation)
	case overview.OperationOver(operation):
		return ended(operation, "there is nothing to cancel")
	case operation.Spec.Control != nil && operation.Spec.Control.CancelRequested:
		if err := o.print.PrintUnchanged(o.env, operation); err != nil {
			return err
		}
		return o.follow(ctx, operation.Name)
	}
	if err := o.confirm(ctx, operation, lookup.Titles(ctx, client)); err != nil {
		return err
	}
	asked, err := steer(ctx, client, operation.Name, func(now *v1alpha1.TalosOperation) (*v1alpha1.TalosOperation, error) {
		return client.IchorV1alpha1().TalosOperations().Cancel(ctx, now.Name, now, metav1.UpdateOptions{DryRun: o.dryRun.Options(), FieldManager: cli.FieldManager})
	})
	if err != nil {
		return err
	}
	if err := o.print.Print(o.env, asked, o.dryRun.Note()); err != nil || o.dryRun.On() {
		return err
	}
	return o.follow(ctx, operation.Name)
}

// confirm says what ends where, and asks.
func (o *cancelOptions) confirm(ctx context.Context, operation *v1alpha1.TalosOperation, titles screen.Titles) error {
	if o.yes || o.dryRun.On() {
		return nil
	}
	if !o.env.CanAsk() {
		return cli.Usagef("a cancellation can't be taken back, and nobody can be asked here whether it is meant: say --yes")
	}
	status := &operation.Status
	o.env.Infof("%s of cluster %s, %s: %d of %s done", overview.OperationType(&operation.Spec), operation.Spec.ClusterRef.Name,
		overview.OperationPhase(operation), status.Done, screen.Plural(int(status.Total), "machine", "machines"))
	if status.Current != "" {
		o.env.Infof("%s", titles.In(status.Message, operation))
	}
	yes, err := operate.Asker(o.env).Confirm(ctx, fmt.Sprintf("Cancel operation %s?", operation.Name))
	switch {
	case errors.Is(err, prompt.ErrAborted), err == nil && !yes:
		return cli.WithCode(cli.ExitUsage, errors.New("nothing was changed; the operation goes on"))
	default:
		return err
	}
}

// follow waits for the end. That it is Cancelled is what was asked for here.
func (o *cancelOptions) follow(ctx context.Context, name string) error {
	if !o.wait.Wanted(o.env) || o.dryRun.On() {
		return nil
	}
	client, err := o.env.Client()
	if err != nil {
		return err
	}
	over, err := operate.Follow(ctx, o.env, client, &o.wait, name)
	switch {
	case over != nil && over.Status.Phase == v1alpha1.OperationCancelled:
		o.env.Infof("operation %s: %s", name, over.Status.Message)
		return nil
	case err == nil:
		return fmt.Errorf("operation %s had come to its end before it could be cancelled: %s", name, over.Status.Message)
	}
	return err
}
