// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/pkg/machineconfig/textdiff"
)

type configDiffOptions struct {
	env   *cli.Env
	print *output.Objects
}

func newConfigDiff(env *cli.Env) *cobra.Command {
	options := &configDiffOptions{env: env, print: output.NewObjects("")}
	cmd := &cobra.Command{
		Use:   "diff NAME [REVISION [REVISION]]",
		Short: "Show in what two configurations that were rendered for a machine differ",
		Long: "Show in what two configurations that were rendered for a machine differ: the newest from the one before it, from a revision, or one revision\n" +
			"from another. Secrets are replaced in both. As of diff, the exit status is 0 without a difference, 1 with one, and above 1 when it fails.\n\n" + namesHelp,
		Example: cli.Examples(env, `
			# What did the last change do?
			ichor machine config diff cp-2

			# What changed since revision 3, and from 3 to 4
			ichor machine config diff cp-2 3
			ichor machine config diff cp-2 3 4
		`),
		Args:              between(1, 3, "a machine and up to two revisions"),
		ValidArgsFunction: completeOneMachine(env),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.BesidesDiffers(options.run(cmd.Context(), args[0], args[1:]))
		},
	}
	options.print.AddFlags(cmd)
	return cmd
}

// between wants some words after a command, within bounds.
func between(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return cli.Usagef("%s takes %s, got %d words; see `%s --help`", cmd.CommandPath(), what, len(args), cmd.CommandPath())
		}
		return nil
	}
}

func (o *configDiffOptions) run(ctx context.Context, name string, revisions []string) error {
	if err := o.print.Check(); err != nil {
		return err
	}
	wanted, err := parseRevisions(revisions)
	if err != nil {
		return err
	}
	client, err := o.env.Client()
	if err != nil {
		return err
	}
	machine, err := lookup.FetchMachine(ctx, client, name)
	if err != nil {
		return err
	}
	both, err := fetchTwo(ctx, client, machine.Name, wanted)
	if err != nil {
		return err
	}
	from, to := &both.Revisions[0], &both.Revisions[1]
	diff, err := diffOf(from, to)
	if err != nil {
		return err
	}
	if o.print.Asked() {
		err = o.print.Print(o.env, both, "")
	} else {
		_, err = fmt.Fprint(o.env.Out, screen.Diff(diff, o.env.OutStyle()))
	}
	if err != nil {
		return err
	}
	if diff != "" {
		return cli.ErrDiffers
	}
	if from.Hash != to.Hash {
		o.env.Infof("Revisions %d and %d differ in secrets alone, which aren't shown.", from.Revision, to.Revision)
	}
	return nil
}

func parseRevisions(words []string) ([]int64, error) {
	var revisions []int64
	for _, word := range words {
		revision, err := strconv.ParseInt(word, 10, 64)
		if err != nil || revision < 1 {
			return nil, cli.Usagef("%q is no revision; `machine config history` lists them", word)
		}
		revisions = append(revisions, revision)
	}
	return revisions, nil
}

// fetchTwo reads the two revisions that are meant, with their texts, in the order in which they are compared: none means
// the last two, one means it and the newest.
func fetchTwo(ctx context.Context, client versioned.Interface, machine string, wanted []int64) (*v1alpha1.TalosMachineHistory, error) {
	history := &v1alpha1.TalosMachineHistory{}
	if len(wanted) < 2 {
		all, err := fetchHistory(ctx, client, machine, 0)
		if err != nil {
			return nil, err
		}
		switch {
		case len(all.Revisions) == 0:
			return nil, fmt.Errorf("nothing was rendered for machine %s yet", machine)
		case len(wanted) == 1:
			wanted = []int64{wanted[0], all.Revisions[0].Revision}
		case len(all.Revisions) == 1:
			return nil, fmt.Errorf("machine %s has one revision, and there is nothing to compare it with", machine)
		default:
			wanted = []int64{all.Revisions[1].Revision, all.Revisions[0].Revision}
		}
	}
	for _, revision := range wanted {
		one, err := fetchHistory(ctx, client, machine, revision)
		if err != nil {
			return nil, err
		}
		if len(one.Revisions) != 1 {
			return nil, fmt.Errorf("the server answered with %d revisions where one was asked for", len(one.Revisions))
		}
		history.TypeMeta, history.ObjectMeta = one.TypeMeta, one.ObjectMeta
		history.Revisions = append(history.Revisions, one.Revisions[0])
	}
	return history, nil
}

// diffOf is the difference between two revisions; empty if there is none that can be seen.
func diffOf(from, to *v1alpha1.ConfigRevision) (string, error) {
	for _, revision := range []*v1alpha1.ConfigRevision{from, to} {
		if revision.Text == "" {
			return "", fmt.Errorf("revision %d has no text: %s", revision.Revision, revision.TextOmitted)
		}
	}
	return textdiff.Unified(fmt.Sprintf("revision %d", from.Revision), fmt.Sprintf("revision %d", to.Revision), from.Text, to.Text), nil
}
