// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/overview"
	"maesh.dev/ichor/cmd/ichor/internal/progress"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

// waitTimeout is how long a machine may take to become Ready before the wait ends: with learners of etcd before it, more
// than ten minutes are no surprise.
const waitTimeout = 30 * time.Minute

type showOptions struct {
	env   *cli.Env
	print *output.Objects
	wait  progress.Wait
}

func newShow(env *cli.Env) *cobra.Command {
	options := &showOptions{env: env, print: output.NewObjects("")}
	cmd := &cobra.Command{
		Use:   "show NAME...",
		Short: "Show all about a machine on one screen, and what to do next",
		Long:  "Show all about a machine on one screen, and what to do next.\n\n" + namesHelp,
		Example: cli.Examples(env, `
			# By hostname, serial number, MAC or IP address
			ichor machine show cp-2
			ichor machine show 10.0.0.61

			# Follow it until it is Ready
			ichor machine show cp-2 --wait
		`),
		Args:              cli.AtLeast(1, "a machine"),
		ValidArgsFunction: lookup.CompleteMachines(env, nil),
		RunE:              func(cmd *cobra.Command, args []string) error { return options.run(cmd.Context(), args) },
	}
	options.print.AddFlags(cmd)
	options.wait.AddFlags(cmd, "the machines are Ready", waitTimeout)
	cmd.Flags().Lookup("wait").Usage = "First wait until the machines are Ready, and show progress."
	return cmd
}

// namesHelp is what commands that take machines say about names.
const namesHelp = "A machine is known by its name, hostname, serial number, a MAC or an IP address; what fits two machines is refused."

func (o *showOptions) run(ctx context.Context, args []string) error {
	if err := o.print.Check(); err != nil {
		return err
	}
	if err := o.wait.Check(); err != nil {
		return err
	}
	client, err := o.env.Client()
	if err != nil {
		return err
	}
	machines, err := fetchAll(ctx, client, args)
	if err != nil {
		return err
	}
	var waited error
	if o.wait.Given() {
		board := progress.NewMachines(progress.Names(machines))
		waited = o.wait.Follow(ctx, o.env, board, progress.WatchMachines(client, board, o.env.Now), showAgain(o.env, args))
		if ctx.Err() != nil {
			return waited
		}
		if machines, err = fetchAll(ctx, client, args); err != nil {
			return err
		}
	}
	if err := o.show(machines); err != nil {
		return err
	}
	return waited
}

func fetchAll(ctx context.Context, client versioned.Interface, args []string) ([]*v1alpha1.TalosMachine, error) {
	machines := make([]*v1alpha1.TalosMachine, 0, len(args))
	for _, arg := range args {
		machine, err := lookup.FetchMachine(ctx, client, arg)
		if err != nil {
			return nil, err
		}
		machines = append(machines, machine)
	}
	return machines, nil
}

func (o *showOptions) show(machines []*v1alpha1.TalosMachine) error {
	if o.print.Asked() {
		object, err := asOne(machines)
		if err != nil {
			return err
		}
		return o.print.Print(o.env, object, "")
	}
	style := o.env.OutStyle()
	for i, machine := range machines {
		if i > 0 {
			_, _ = fmt.Fprintln(o.env.Out)
		}
		var next []string
		if advice := screen.Advice(overview.Next(machine, o.env.Name), style); advice != "" {
			next = []string{advice}
		}
		if _, err := fmt.Fprint(o.env.Out, screen.Machine(machine, next, o.env.Now(), style)); err != nil {
			return err
		}
	}
	return nil
}

// asOne is the object itself, or a list of several; without types, because the printer of names takes no typed list.
func asOne(machines []*v1alpha1.TalosMachine) (runtime.Object, error) {
	if len(machines) == 1 {
		return machines[0], nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("TalosMachineList"))
	for _, machine := range machines {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(machine)
		if err != nil {
			return nil, fmt.Errorf("print machine %s: %w", machine.Name, err)
		}
		item := unstructured.Unstructured{Object: content}
		item.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("TalosMachine"))
		list.Items = append(list.Items, item)
	}
	return list, nil
}

func showAgain(env *cli.Env, names []string) string {
	again := env.Name + " machine show"
	for _, name := range names {
		again += " " + name
	}
	return again + " --wait"
}
