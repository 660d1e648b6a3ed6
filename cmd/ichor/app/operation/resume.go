// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/operate"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/overview"
	"maesh.dev/ichor/cmd/ichor/internal/progress"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

type resumeOptions struct {
	env    *cli.Env
	wait   progress.Wait
	dryRun cli.DryRun
	print  *output.Objects
}

func newResume(env *cli.Env) *cobra.Command {
	options := &resumeOptions{env: env, print: output.NewObjects("resumed")}
	cmd := &cobra.Command{
		Use:   "resume NAME",
		Short: "Let an operation go on: one that is suspended, or one that stopped at a step",
		Long: "Let an operation go on. One that is suspended begins its next machine; one that stopped at a step tries that step again, so mend first what it says. " +
			"Who asked, and when, is recorded by the server.\n\n" + operate.EndsHelp,
		Example: cli.Examples(env, `
			ichor operation resume reboot-x7k2p
		`),
		Args: cli.Exactly(1, "one operation"),
		ValidArgsFunction: lookup.CompleteOperations(env, 1, func(operation *v1alpha1.TalosOperation) bool {
			return operation.Status.Phase == v1alpha1.OperationPaused || operation.Spec.Suspend && isOpen(operation)
		}),
		RunE: func(cmd *cobra.Command, args []string) error { return options.run(cmd.Context(), args[0]) },
	}
	options.wait.AddFlags(cmd, "the operation has ended", operate.Timeout)
	options.dryRun.AddFlag(cmd)
	options.print.AddFlags(cmd)
	return cmd
}

func (o *resumeOptions) run(ctx context.Context, name string) error {
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
	stopped := overview.OperationPaused(operation) && (overview.FailedStep(operation) != nil || !operation.Spec.Suspend)
	switch {
	case overview.OperationOver(operation):
		return ended(operation, "there is nothing to resume; make another")
	case !operation.Spec.Suspend && !stopped:
		o.env.Infof("operation %s is neither suspended nor stopped: it is %s", operation.Name, overview.OperationPhase(operation))
		return o.print.PrintUnchanged(o.env, operation)
	}
	resumed := operation
	if operation.Spec.Suspend {
		if resumed, err = setSuspend(ctx, client, operation.Name, false, o.dryRun); err != nil {
			return err
		}
	}
	if stopped {
		if resumed, err = askAgain(ctx, client, operation.Name, o.dryRun); err != nil {
			return err
		}
	}
	if err := o.print.Print(o.env, resumed, o.dryRun.Note()); err != nil || o.dryRun.On() || !o.wait.Wanted(o.env) {
		return err
	}
	over, err := operate.Follow(ctx, o.env, client, &o.wait, operation.Name)
	if err == nil {
		operate.Tell(o.env, over)
	}
	return err
}

// askAgain lets the step that failed be tried again.
func askAgain(ctx context.Context, client versioned.Interface, name string, dryRun cli.DryRun) (*v1alpha1.TalosOperation, error) {
	return steer(ctx, client, name, func(now *v1alpha1.TalosOperation) (*v1alpha1.TalosOperation, error) {
		return client.IchorV1alpha1().TalosOperations().Resume(ctx, name, now, metav1.UpdateOptions{DryRun: dryRun.Options(), FieldManager: cli.FieldManager})
	})
}

// steer calls a subresource with the operation as it is now; the engine may write its status at any time.
func steer(ctx context.Context, client versioned.Interface, name string, call func(*v1alpha1.TalosOperation) (*v1alpha1.TalosOperation, error)) (*v1alpha1.TalosOperation, error) {
	var steered *v1alpha1.TalosOperation
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := fetch(ctx, client, name)
		if err == nil {
			steered, err = call(now)
		}
		return err
	})
	return steered, err
}
