// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/overview"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

type suspendOptions struct {
	env    *cli.Env
	dryRun cli.DryRun
	print  *output.Objects
}

func newSuspend(env *cli.Env) *cobra.Command {
	options := &suspendOptions{env: env, print: output.NewObjects("suspended")}
	cmd := &cobra.Command{
		Use:   "suspend NAME",
		Short: "Let an operation finish the machine that it is at, and begin no other",
		Long: "Let an operation finish the machine that it is at, and begin no other. It keeps its place; `" + env.Name + " operation resume` lets it go on.\n\n" +
			"As long as an operation that has begun isn't over, no other works on its cluster.",
		Example: cli.Examples(env, `
			ichor operation suspend reboot-x7k2p
		`),
		Args:              cli.Exactly(1, "one operation"),
		ValidArgsFunction: lookup.CompleteOperations(env, 1, isOpen),
		RunE:              func(cmd *cobra.Command, args []string) error { return options.run(cmd.Context(), args[0]) },
	}
	options.dryRun.AddFlag(cmd)
	options.print.AddFlags(cmd)
	return cmd
}

func (o *suspendOptions) run(ctx context.Context, name string) error {
	for _, err := range []error{o.print.Check(), o.dryRun.Check()} {
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
	case overview.OperationOver(operation):
		return ended(operation, "there is nothing to suspend")
	case operation.Spec.Suspend:
		return o.print.PrintUnchanged(o.env, operation)
	}
	suspended, err := setSuspend(ctx, client, operation.Name, true, o.dryRun)
	if err != nil {
		return err
	}
	if current := operation.Status.Current; current != "" && !o.dryRun.On() {
		o.env.Infof("Machine %s was begun and is finished first.", lookup.Titles(ctx, client).Of(current))
	}
	return o.print.Print(o.env, suspended, o.dryRun.Note())
}

// setSuspend sets the one field of an operation that can be changed.
func setSuspend(ctx context.Context, client versioned.Interface, name string, to bool, dryRun cli.DryRun) (*v1alpha1.TalosOperation, error) {
	body := fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, to)
	return client.IchorV1alpha1().TalosOperations().Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{DryRun: dryRun.Options(), FieldManager: cli.FieldManager})
}

// ended refuses to steer an operation that is over.
func ended(operation *v1alpha1.TalosOperation, so string) error {
	return cli.WithCode(cli.ExitBlocked, fmt.Errorf("operation %s has ended (%s): %s", operation.Name, operation.Status.Phase, so))
}
