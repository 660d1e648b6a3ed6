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
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

type renderOptions struct {
	env     *cli.Env
	file    string
	machine string
	alone   bool
	print   *output.Objects
}

func newRender(env *cli.Env) *cobra.Command {
	options := &renderOptions{env: env, print: output.NewObjects("")}
	cmd := &cobra.Command{
		Use:   "render (NAME | -f FILE) --machine MACHINE",
		Short: "Show the whole configuration of a machine with a patch",
		Long:  "Show the whole configuration that a machine would have with a patch, that of a name or of a file. Every secret is replaced by asterisks.",
		Example: cli.Examples(env, `
			ichor patch render tuning --machine cp-1

			# Without all other patches
			ichor patch render -f tuning.yaml --machine cp-1 --alone
		`),
		Args:              cli.AtMost(1, "one patch"),
		ValidArgsFunction: lookup.CompletePatches(env),
		RunE:              func(cmd *cobra.Command, args []string) error { return options.run(cmd.Context(), args) },
	}
	addFileFlag(cmd, &options.file)
	cmd.Flags().StringVar(&options.machine, "machine", "", "The machine: its name, hostname, serial number, a MAC or an IP address.")
	cmd.Flags().BoolVar(&options.alone, "alone", false, "Leave all other patches out.")
	_ = cmd.RegisterFlagCompletionFunc("machine", lookup.CompleteMachines(env, nil))
	options.print.AddFlags(cmd)
	return cmd
}

func (o *renderOptions) run(ctx context.Context, args []string) error {
	if (o.file == "") == (len(args) == 0) {
		return cli.Usagef("`%s patch render` needs either the name of a patch or -f FILE", o.env.Name)
	}
	if o.machine == "" {
		return cli.Usagef("`%s patch render` needs --machine MACHINE", o.env.Name)
	}
	if err := o.print.Check(); err != nil {
		return err
	}
	client, err := silent(o.env)
	if err != nil {
		return err
	}
	machine, err := lookup.FetchMachine(ctx, client, o.machine)
	if err != nil {
		return err
	}
	answer, err := o.preview(ctx, client, args, &v1alpha1.PreviewRender{Machine: machine.Name, Alone: o.alone})
	if err != nil {
		return err
	}
	if o.print.Asked() {
		return o.print.Print(o.env, answer, "")
	}
	for _, warning := range answer.Status.Warnings {
		o.env.Infof("warning: %s", warning)
	}
	_, err = fmt.Fprint(o.env.Out, answer.Status.Configuration)
	return err
}

func (o *renderOptions) preview(ctx context.Context, client versioned.Interface, args []string, render *v1alpha1.PreviewRender) (*v1alpha1.TalosConfigPatchPreview, error) {
	if len(args) > 0 {
		patch, err := client.IchorV1alpha1().TalosConfigPatches().Get(ctx, lookup.ObjectName(args[0]), metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return preview(ctx, client, patch.Name, v1alpha1.TalosConfigPatchPreviewSpec{Patch: &patch.Spec, Render: render})
	}
	objects, err := readFile(o.env, o.file)
	if err != nil {
		return nil, cli.WithCode(cli.ExitUsage, err)
	}
	if len(objects) != 1 {
		return nil, cli.Usagef("%s has %d patches; one is rendered at a time", o.file, len(objects))
	}
	all, err := try(ctx, client, objects, false, render)
	if err != nil {
		return nil, err
	}
	return all[0].preview, nil
}
