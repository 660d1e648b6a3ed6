// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/prompt"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

type resolveOptions struct {
	env      *cli.Env
	distinct bool
	sameAs   string
	dryRun   cli.DryRun
	print    *output.Objects
	asker    func() asker
}

func newResolve(env *cli.Env) *cobra.Command {
	options := &resolveOptions{env: env, print: output.NewObjects("resolved"), asker: func() asker { return newAsker(env) }}
	cmd := &cobra.Command{
		Use:   "resolve NAME --distinct | --same-as OTHER",
		Short: "Say which machine one of doubtful identity is",
		Long: `Say which machine one of doubtful identity is: its UUID is junk, or is held by another machine.

--distinct says that it is a machine of its own, whatever its UUID claims; it can be approved then.
--same-as says that it is a machine that is known: its address moves there, and this object goes.

On a terminal without either it shows the machine and asks.

` + namesHelp,
		Example: cli.Examples(env, `
			ichor machine resolve weak-5f3a9c --distinct
			ichor machine resolve weak-5f3a9c --same-as worker-3
		`),
		Args:              cli.Exactly(1, "one machine"),
		ValidArgsFunction: lookup.CompleteMachines(env, isPending),
		RunE:              func(cmd *cobra.Command, args []string) error { return options.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().BoolVar(&options.distinct, "distinct", false, "It is a machine of its own.")
	cmd.Flags().StringVar(&options.sameAs, "same-as", "", "It is this machine.")
	_ = cmd.RegisterFlagCompletionFunc("same-as", lookup.CompleteMachines(env, nil))
	options.dryRun.AddFlag(cmd)
	options.print.AddFlags(cmd)
	return cmd
}

func (o *resolveOptions) run(ctx context.Context, name string) error {
	if err := o.check(name); err != nil {
		return err
	}
	client, err := o.env.Client()
	if err != nil {
		return err
	}
	machines, err := listMachines(ctx, client)
	if err != nil {
		return err
	}
	machine, err := lookup.Machine(machines, name)
	if err != nil {
		return err
	}
	if doubt(machine) == "" && machine.Spec.IdentityResolution == nil {
		return cli.WithCode(cli.ExitBlocked, fmt.Errorf("machine %s: its identity isn't in doubt, there is nothing to resolve", machine.Name))
	}
	resolution, err := o.resolution(ctx, machines, machine)
	if err != nil {
		return err
	}
	return o.send(ctx, client, machine.Name, resolution)
}

func (o *resolveOptions) check(name string) error {
	for _, err := range []error{o.print.Check(), o.dryRun.Check()} {
		if err != nil {
			return err
		}
	}
	switch {
	case o.distinct && o.sameAs != "":
		return cli.Usagef("say either --distinct or --same-as, not both")
	case !o.distinct && o.sameAs == "" && !o.env.CanAsk():
		return cli.Usagef("nobody can be asked here: say --distinct or --same-as OTHER; `%s machine show %s` shows the doubt", o.env.Name, name)
	}
	return nil
}

// resolution is what the flags say, or what a person answers.
func (o *resolveOptions) resolution(ctx context.Context, machines []v1alpha1.TalosMachine, machine *v1alpha1.TalosMachine) (*v1alpha1.IdentityResolution, error) {
	if !o.distinct && o.sameAs == "" {
		if err := o.ask(ctx, machines, machine); err != nil {
			return nil, left(err)
		}
	}
	if o.distinct {
		return &v1alpha1.IdentityResolution{Decision: v1alpha1.IdentityDistinct}, nil
	}
	other, err := lookup.Machine(machines, o.sameAs)
	if err != nil {
		return nil, fmt.Errorf("--same-as: %w", err)
	}
	if other.Name == machine.Name {
		return nil, cli.Usagef("--same-as: %s is the machine itself", other.Name)
	}
	return &v1alpha1.IdentityResolution{Decision: v1alpha1.IdentitySameAs, Machine: other.Name}, nil
}

func (o *resolveOptions) ask(ctx context.Context, machines []v1alpha1.TalosMachine, machine *v1alpha1.TalosMachine) error {
	const distinct = "distinct"
	_, _ = fmt.Fprintln(o.env.ErrOut, screen.Identity(machine, o.env.ErrStyle()))
	o.env.Infof("%s\n", o.env.ErrStyle().Wait(doubt(machine)))
	options := []prompt.Option{{Label: "a machine of its own", Value: distinct}}
	for i := range machines {
		other := &machines[i]
		if other.Name == machine.Name || doubt(other) != "" {
			continue
		}
		label := fmt.Sprintf("the same as %s (%s, serial %s)", screen.MachineTitle(other), other.Name, other.Spec.Identity.SerialNumber)
		options = append(options, prompt.Option{Label: label, Value: other.Name})
	}
	answers, err := o.asker().Ask(ctx, []prompt.Page{{Title: "Which machine is it?", Questions: []prompt.Question{
		{Key: "which", Title: "It is", Help: "if it is one that is known, its address moves there and this object goes", Options: options},
	}}})
	if err != nil {
		return err
	}
	if o.distinct = answers["which"] == distinct; !o.distinct {
		o.sameAs = answers["which"]
	}
	return nil
}

func (o *resolveOptions) send(ctx context.Context, client versioned.Interface, name string, resolution *v1alpha1.IdentityResolution) error {
	machines := client.IchorV1alpha1().TalosMachines()
	var resolved *v1alpha1.TalosMachine
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := machines.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if before := now.Spec.IdentityResolution; before != nil && before.Decision == resolution.Decision && before.Machine == resolution.Machine {
			o.env.Infof("%s is resolved so already; unchanged", name)
			return nil
		}
		if doubt(now) == "" && now.Spec.IdentityResolution == nil {
			return errors.New("its identity isn't in doubt any more")
		}
		now.Spec.IdentityResolution = resolution
		resolved, err = machines.UpdateIdentity(ctx, name, now, metav1.UpdateOptions{DryRun: o.dryRun.Options(), FieldManager: cli.FieldManager})
		return err
	})
	if err != nil || resolved == nil {
		return err
	}
	return o.print.Print(o.env, resolved, o.dryRun.Note())
}
