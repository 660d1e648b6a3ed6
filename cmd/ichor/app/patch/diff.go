// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

type diffOptions struct {
	env   *cli.Env
	file  string
	force bool
	print *output.Objects
}

func newDiff(env *cli.Env) *cobra.Command {
	options := &diffOptions{env: env, print: output.NewObjects("")}
	cmd := &cobra.Command{
		Use:   "diff (-f FILE | NAME)",
		Short: "Show what patches would change on machines, or what deleting one would",
		Long: "Show what writing the patches of a file would change on machines; or, with the name of a patch, what deleting it would.\n\n" +
			"The exit status is 0 if nothing would change, 1 if something would or could not be had, and above 1 if that could not be found out.",
		Example: cli.Examples(env, `
			ichor patch diff -f tuning.yaml
			ichor patch diff tuning
		`),
		Args:              cli.AtMost(1, "one patch"),
		ValidArgsFunction: lookup.CompletePatches(env),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.BesidesDiffers(options.run(cmd.Context(), args))
		},
	}
	addFileFlag(cmd, &options.file)
	cmd.Flags().BoolVar(&options.force, "force-conflicts", false, "As if fields that somebody else applied were taken over.")
	options.print.AddFlags(cmd)
	return cmd
}

func (o *diffOptions) run(ctx context.Context, args []string) error {
	if (o.file == "") == (len(args) == 0) {
		return cli.Usagef("`%s patch diff` needs either -f FILE or the name of a patch", o.env.Name)
	}
	if err := o.print.Check(); err != nil {
		return err
	}
	client, err := silent(o.env)
	if err != nil {
		return err
	}
	previews, err := o.previews(ctx, client, args)
	if err != nil {
		return err
	}
	found := false
	var left []error
	known := titles(ctx, client)
	for _, preview := range previews {
		if o.print.Asked() {
			err = o.print.Print(o.env, preview, "")
		} else {
			_, err = fmt.Fprint(o.env.Out, screen.Preview(preview, known, o.env.OutStyle()))
		}
		if err != nil {
			return err
		}
		found = found || differs(preview)
		left = append(left, complete(preview))
	}
	if found {
		return cli.ErrDiffers
	}
	return errors.Join(left...)
}

func (o *diffOptions) previews(ctx context.Context, client versioned.Interface, args []string) ([]*v1alpha1.TalosConfigPatchPreview, error) {
	if len(args) > 0 {
		deleted, err := preview(ctx, client, lookup.ObjectName(args[0]), v1alpha1.TalosConfigPatchPreviewSpec{Change: v1alpha1.PatchDelete})
		return []*v1alpha1.TalosConfigPatchPreview{deleted}, err
	}
	objects, err := readFile(o.env, o.file)
	if err != nil {
		return nil, err
	}
	all, err := try(ctx, client, objects, o.force, nil)
	if err != nil {
		return nil, err
	}
	var previews []*v1alpha1.TalosConfigPatchPreview
	for _, each := range all {
		previews = append(previews, each.preview)
	}
	return previews, nil
}
