// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/progress"
	"maesh.dev/ichor/cmd/ichor/internal/prompt"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

type applyOptions struct {
	env    *cli.Env
	file   string
	yes    bool
	force  bool
	dryRun cli.DryRun
	wait   progress.Wait
	print  *output.Objects
	asker  func() prompt.Asker
}

func newApply(env *cli.Env) *cobra.Command {
	options := &applyOptions{env: env, print: output.NewObjects("applied"), asker: func() prompt.Asker { return newAsker(env) }}
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Show what patches would do to machines, ask, and apply them",
		Long: "Show what patches would do, for each class of machines that get the same change, and which machines need a reboot for it; ask; " +
			"then write the patches by server-side apply, and wait until the machines run with them.",
		Example: cli.Examples(env, `
			ichor patch apply -f tuning.yaml

			# In a pipeline
			ichor patch apply -f - --yes --wait < tuning.yaml

			# Only show it
			ichor patch apply -f tuning.yaml --dry-run=server
		`),
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return options.run(cmd.Context()) },
	}
	addFileFlag(cmd, &options.file)
	cmd.Flags().BoolVarP(&options.yes, "yes", "y", false, "Don't ask.")
	cmd.Flags().BoolVar(&options.force, "force-conflicts", false, "Take over fields that somebody else applied.")
	options.dryRun.AddFlag(cmd)
	options.wait.AddFlags(cmd, "all machines run with the patches, or wait for a reboot", waitTimeout)
	options.print.AddFlags(cmd)
	return cmd
}

func addFileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "filename", "f", "", `A file with TalosConfigPatches in YAML or JSON; "-" is standard input.`)
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
}

func newAsker(env *cli.Env) prompt.Asker {
	if env.CanRedraw() {
		return prompt.NewPages(env.In, env.ErrOut)
	}
	return prompt.NewLines(env.In, env.ErrOut)
}

func (o *applyOptions) run(ctx context.Context) error {
	if o.file == "" {
		return cli.Usagef("`%s patch apply` needs -f FILE", o.env.Name)
	}
	if o.file == "-" && !o.yes && !o.dryRun.On() {
		return cli.Usagef("standard input is the patch, so nobody can be asked: say --yes")
	}
	for _, err := range []error{o.print.Check(), o.dryRun.Check(), o.wait.Check()} {
		if err != nil {
			return err
		}
	}
	objects, err := readFile(o.env, o.file)
	if err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	quiet, err := silent(o.env)
	if err != nil {
		return err
	}
	all, err := try(ctx, quiet, objects, o.force, nil)
	if err != nil {
		return err
	}
	known := titles(ctx, quiet)
	for _, each := range all {
		if len(all) > 1 {
			o.env.Infof("%s", o.env.ErrStyle().Heading("patch "+each.name))
		}
		_, _ = fmt.Fprint(o.env.ErrOut, screen.Preview(each.preview, known, o.env.ErrStyle()))
	}
	if o.dryRun.On() {
		for _, each := range all {
			if err := o.print.Print(o.env, each.patch, o.dryRun.Note()); err != nil {
				return err
			}
		}
		return nil
	}
	if err := o.confirm(ctx, all); err != nil {
		return err
	}
	client, err := o.env.Client()
	if err != nil {
		return err
	}
	return o.carryOut(ctx, client, all)
}

// confirm asks once for all. What changes no machine needs no word.
func (o *applyOptions) confirm(ctx context.Context, all []tried) error {
	var sum v1alpha1.PreviewCounts
	wanted := false
	for _, each := range all {
		counts := each.preview.Status.Machines
		sum.Changed, sum.NeedReboot, sum.Refused = sum.Changed+counts.Changed, sum.NeedReboot+counts.NeedReboot, sum.Refused+counts.Refused
		sum.NotComputed += counts.NotComputed
		wanted = wanted || differs(each.preview) || counts.NotComputed > 0
	}
	if o.yes || !wanted {
		return nil
	}
	if !o.env.CanAsk() {
		return cli.Usagef("it %s, and nobody can be asked here whether that is meant: say --yes", screen.PreviewCounts(&sum))
	}
	what := "patch " + all[0].name
	if len(all) > 1 {
		what = screen.Plural(len(all), "patch", "patches")
		sum = v1alpha1.PreviewCounts{} // a machine that several change would count several times
	}
	question := "Apply " + what + "?"
	if len(all) == 1 {
		question = fmt.Sprintf("Apply %s? It %s.", what, screen.PreviewCounts(&sum))
	}
	yes, err := o.asker().Confirm(ctx, question)
	switch {
	case errors.Is(err, prompt.ErrAborted), err == nil && !yes:
		return cli.Cancelled()
	default:
		return err
	}
}

// carryOut writes the patches in their order, and waits for them. The first that fails ends it.
func (o *applyOptions) carryOut(ctx context.Context, client versioned.Interface, all []tried) error {
	var written []*v1alpha1.TalosConfigPatch
	for _, each := range all {
		before, err := client.IchorV1alpha1().TalosConfigPatches().Get(ctx, each.name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		unchanged := err == nil
		patch, err := each.apply(ctx, client, false, o.force)
		if err != nil {
			return fmt.Errorf("patch %s: %w", each.name, err)
		}
		unchanged = unchanged && apiequality.Semantic.DeepEqual(before.Spec, patch.Spec) &&
			apiequality.Semantic.DeepEqual(before.Labels, patch.Labels) && apiequality.Semantic.DeepEqual(before.Annotations, patch.Annotations)
		if unchanged {
			err = o.print.PrintUnchanged(o.env, patch)
		} else {
			err = o.print.Print(o.env, patch, "")
		}
		if err != nil {
			return err
		}
		written = append(written, patch)
	}
	if !o.wait.Wanted(o.env) {
		return nil
	}
	for _, patch := range written {
		if err := follow(ctx, o.env, &o.wait, client, patch); err != nil {
			return err
		}
	}
	return nil
}
