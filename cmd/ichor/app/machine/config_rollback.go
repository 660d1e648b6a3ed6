// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/rollback"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

type configRollbackOptions struct {
	env   *cli.Env
	print *output.Objects
}

func newConfigRollback(env *cli.Env) *cobra.Command {
	options := &configRollbackOptions{env: env, print: output.NewObjects("")}
	cmd := &cobra.Command{
		Use:   "rollback NAME REVISION",
		Short: "Show what to change so that a machine gets a configuration that it had",
		Long: "Show what to change so that a machine gets a configuration that it had: which patches and other things it was made of are others by now, what\n" +
			"to type for each, and the difference that it would make. It changes nothing: what a machine runs follows from what is decided, and a patch\n" +
			"is often for other machines too.\n\n" + namesHelp,
		Example: cli.Examples(env, `
			# Which revisions are there, and how would I get to revision 3?
			ichor machine config history cp-2
			ichor machine config rollback cp-2 3
		`),
		Args:              cli.Exactly(2, "a machine and a revision"),
		ValidArgsFunction: completeOneMachine(env),
		RunE:              func(cmd *cobra.Command, args []string) error { return options.run(cmd.Context(), args[0], args[1]) },
	}
	options.print.AddFlags(cmd)
	return cmd
}

func (o *configRollbackOptions) run(ctx context.Context, name, word string) error {
	if err := o.print.Check(); err != nil {
		return err
	}
	wanted, err := parseRevisions([]string{word})
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
	then, newest := &both.Revisions[0], &both.Revisions[1]
	if o.print.Asked() {
		both.Revisions = both.Revisions[:1]
		return o.print.Print(o.env, both, "")
	}
	now, err := fetchNow(ctx, client, machine)
	if err != nil {
		return err
	}
	steps := rollback.Steps(&then.Inputs, now, o.env.Name)
	diff, err := diffOf(newest, then)
	if err != nil {
		diff = err.Error() + "\n"
	}
	_, err = fmt.Fprint(o.env.Out, o.text(machine.Name, then, steps, diff))
	return err
}

// fetchNow reads what the machine's configuration is made of now.
func fetchNow(ctx context.Context, client versioned.Interface, machine *v1alpha1.TalosMachine) (rollback.Now, error) {
	now := rollback.Now{Machine: machine}
	var err error
	if now.Cluster, err = client.IchorV1alpha1().TalosClusters().Get(ctx, machine.Spec.ClusterRef.Name, metav1.GetOptions{}); err != nil {
		return now, err
	}
	for options := (metav1.ListOptions{Limit: patchPage}); ; {
		list, err := client.IchorV1alpha1().TalosConfigPatches().List(ctx, options)
		if err != nil {
			return now, err
		}
		now.Patches = append(now.Patches, list.Items...)
		if options.Continue = list.Continue; options.Continue == "" {
			return now, nil
		}
	}
}

// patchPage is how many patches are asked for at a time, as kubectl does.
const patchPage = 500

func (o *configRollbackOptions) text(machine string, then *v1alpha1.ConfigRevision, steps []rollback.Step, diff string) string {
	style := o.env.OutStyle()
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	line("%s", style.Heading(fmt.Sprintf("Machine %s, revision %d (rendered %s ago)", machine, then.Revision, screen.Age(o.env.Now(), then.Time.Time))))
	line("This command changes nothing.")
	line("")
	switch {
	case len(steps) == 0 && diff == "":
		line("The machine's configuration is the same as in this revision.")
		return out.String()
	case len(steps) == 0:
		line("All patches, the cluster, the approval and the versions are as they were: a value from a Secret, the cluster's secrets, the machine's own")
		line("disks and links, or a newer Ichor makes the difference.")
	default:
		line("%s", style.Heading("What it was made of is other by now:"))
		for _, step := range steps {
			line("  %s: %s", step.What, step.Since)
			if step.Do != "" {
				line("      %s", style.Command(step.Do))
			}
			if step.Note != "" {
				line("      %s", style.Faint("("+step.Note+")"))
			}
		}
	}
	line("")
	if diff == "" {
		line("The configuration is the same as in this revision all the same: nothing needs to be done.")
		return out.String()
	}
	line("%s", style.Heading("What that would change, from what the machine is to have now:"))
	return out.String() + screen.Diff(diff, style)
}
