// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/progress"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

type showOptions struct {
	env   *cli.Env
	print *output.Objects
	wait  progress.Wait
}

func newShow(env *cli.Env) *cobra.Command {
	options := &showOptions{env: env, print: output.NewObjects("")}
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a patch, how far it has come, and who can't have it",
		Example: cli.Examples(env, `
			ichor patch show tuning

			# Follow it until all machines run with it
			ichor patch show tuning --wait
		`),
		Args:              cli.Exactly(1, "a patch"),
		ValidArgsFunction: lookup.CompletePatches(env),
		RunE:              func(cmd *cobra.Command, args []string) error { return options.run(cmd.Context(), args[0]) },
	}
	options.print.AddFlags(cmd)
	options.wait.AddFlags(cmd, "all machines run with the patch, or wait for a reboot", waitTimeout)
	cmd.Flags().Lookup("wait").Usage = "First wait until all machines run with the patch, or wait for a reboot, and show progress."
	return cmd
}

func (o *showOptions) run(ctx context.Context, name string) error {
	for _, err := range []error{o.print.Check(), o.wait.Check()} {
		if err != nil {
			return err
		}
	}
	client, err := o.env.Client()
	if err != nil {
		return err
	}
	patches := client.IchorV1alpha1().TalosConfigPatches()
	patch, err := patches.Get(ctx, lookup.ObjectName(name), metav1.GetOptions{})
	if err != nil {
		return err
	}
	var waited error
	if o.wait.Given() {
		waited = follow(ctx, o.env, &o.wait, client, patch)
		if ctx.Err() != nil {
			return waited
		}
		if patch, err = patches.Get(ctx, patch.Name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	if o.print.Asked() {
		err = o.print.Print(o.env, patch, "")
	} else {
		_, err = fmt.Fprint(o.env.Out, screen.Patch(patch, o.env.Now(), o.env.OutStyle()))
	}
	if err != nil {
		return err
	}
	return waited
}

// follow shows how a patch reaches its machines.
func follow(ctx context.Context, env *cli.Env, wait *progress.Wait, client versioned.Interface, patch *v1alpha1.TalosConfigPatch) error {
	board := progress.NewPatch(patch.Name, patch.Generation, env.Now())
	return wait.Follow(ctx, env, board, progress.WatchPatch(client, board), env.Name+" patch show "+patch.Name+" --wait")
}
