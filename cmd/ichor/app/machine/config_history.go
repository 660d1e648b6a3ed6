// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

// hashShown is how many digits of a hash are shown.
const hashShown = 12

type configHistoryOptions struct {
	env   *cli.Env
	print *output.Objects
}

func newConfigHistory(env *cli.Env) *cobra.Command {
	options := &configHistoryOptions{env: env, print: output.NewObjects("")}
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "List the last configurations that were rendered for a machine, and what changed",
		Long: "List the last ten configurations that were rendered for a machine, the newest first, and what changed from one to the next: patches, the\n" +
			"cluster, the approval, or the versions. Whether the machine has the newest, `machine show` says.\n\n" + namesHelp,
		Example: cli.Examples(env, `
			# What was it given, and why?
			ichor machine config history cp-2

			# As the API has it
			ichor machine config history cp-2 -o json
		`),
		Args:              cli.Exactly(1, "one machine"),
		ValidArgsFunction: completeOneMachine(env),
		RunE:              func(cmd *cobra.Command, args []string) error { return options.run(cmd.Context(), args[0]) },
	}
	options.print.AddFlags(cmd)
	return cmd
}

// completeOneMachine completes the first word only.
func completeOneMachine(env *cli.Env) cobra.CompletionFunc {
	machines := lookup.CompleteMachines(env, nil)
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return machines(cmd, args, typed)
	}
}

func (o *configHistoryOptions) run(ctx context.Context, name string) error {
	if err := o.print.Check(); err != nil {
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
	history, err := fetchHistory(ctx, client, machine.Name, 0)
	if err != nil {
		return err
	}
	if o.print.Asked() {
		return o.print.Print(o.env, history, "")
	}
	if len(history.Revisions) == 0 {
		o.env.Infof("Nothing was rendered for machine %s yet.", machine.Name)
		return nil
	}
	style := o.env.OutStyle()
	rows := [][]string{{style.Heading("REVISION"), style.Heading("AGE"), style.Heading("HASH"), style.Heading("WHAT CHANGED")}}
	for _, revision := range history.Revisions {
		rows = append(rows, []string{
			strconv.FormatInt(revision.Revision, 10), screen.Age(o.env.Now(), revision.Time.Time), shortHash(revision.Hash), causes(&revision),
		})
	}
	_, err = fmt.Fprintln(o.env.Out, strings.Join(screen.Columns(rows), "\n"))
	return err
}

// fetchHistory reads a machine's history; revision 0 is all of it, without texts.
func fetchHistory(ctx context.Context, client versioned.Interface, machine string, revision int64) (*v1alpha1.TalosMachineHistory, error) {
	request := client.IchorV1alpha1().RESTClient().Get().Resource("talosmachines").Name(machine).SubResource("history")
	if revision != 0 {
		request = request.Param("revision", strconv.FormatInt(revision, 10))
	}
	history := &v1alpha1.TalosMachineHistory{}
	if err := request.Do(ctx).Into(history); err != nil {
		return nil, err
	}
	return history, nil
}

func shortHash(hash string) string { return hash[:min(len(hash), hashShown)] }

// causes say what changed, in one line.
func causes(revision *v1alpha1.ConfigRevision) string {
	var messages []string
	for _, cause := range revision.Causes {
		messages = append(messages, cause.Message)
	}
	return strings.Join(messages, "; ")
}
