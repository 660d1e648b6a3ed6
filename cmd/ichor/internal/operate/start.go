// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/progress"
	"maesh.dev/ichor/cmd/ichor/internal/prompt"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

// Kind is a type of operation on some machines, as a verb starts it.
type Kind struct {
	// Name begins the names of the operations.
	Name string
	// Verb is what is done to the machines, for a question: "Reboot", say.
	Verb string
	// Set puts the member of the union in.
	Set func(spec *v1alpha1.TalosOperationSpec)
	// Needs tells whether a machine has need of it; nil: every machine has.
	Needs func(*v1alpha1.TalosMachine) bool
	// Nothing says that no machine has need of it.
	Nothing string
	// Judge looks at the machines that were found before a person is asked and anything is written. nil: nothing.
	Judge func(ctx context.Context, client versioned.Interface, cluster string, machines []*v1alpha1.TalosMachine) error
	// Before is done with a person's consent, right before the operation is made; not for a plan. nil: nothing.
	Before func(ctx context.Context, client versioned.Interface, cluster string, dryRun []string) error
	// About says what a machine goes through, where a person is asked. nil: nothing.
	About func(*v1alpha1.TalosMachine) string
	// Manner says in which manner, where that isn't one machine at a time.
	Manner func() string
}

// Start makes an operation and follows it.
type Start struct {
	kind         Kind
	env          *cli.Env
	targets      targets
	plan, yes    bool
	drainTimeout time.Duration
	wait         progress.Wait
	dryRun       cli.DryRun
	print        *output.Objects
}

// NewStart makes the work of a verb that starts operations of a kind.
func NewStart(env *cli.Env, kind Kind) *Start {
	return &Start{env: env, kind: kind, print: output.NewObjects("created")}
}

// PlanHelp says what --plan does.
const PlanHelp = "With --plan an operation of mode Plan is made: what would be done in which order, the checks and the risks are shown, and no machine is touched. " +
	"That operation stays as history."

// StartHelp is what verbs that start an operation say about it.
const StartHelp = "What it does is a TalosOperation, which goes on without this command and stops where something isn't as it should be. " +
	"One with gates or windows of your own is made with kubectl.\n\n" + EndsHelp

// All is true when all machines of a cluster are meant, and not because each was named.
func (s *Start) All() bool { return s.targets.all && s.targets.selector == "" }

// AddFlags adds the flags that all such verbs have.
func (s *Start) AddFlags(cmd *cobra.Command) {
	s.targets.addFlags(cmd, s.env)
	cmd.Flags().BoolVar(&s.plan, "plan", false, "Show the order, the checks and the risks, and touch no machine.")
	cmd.Flags().BoolVarP(&s.yes, "yes", "y", false, "Don't ask whether the machines that --all or -l found are meant.")
	cmd.Flags().DurationVar(&s.drainTimeout, "drain-timeout", 0, "How long a machine's pods may take to move away before the operation is Paused; 10m if not given.")
	s.wait.AddFlags(cmd, "the operation has ended", Timeout)
	s.dryRun.AddFlag(cmd)
	s.print.AddFlags(cmd)
}

// Check refuses a call that makes no sense, before any work is done.
func (s *Start) Check(cmd *cobra.Command, args []string) error {
	for _, err := range []error{s.print.Check(), s.dryRun.Check(), s.wait.Check(), s.targets.check(cmd, args)} {
		if err != nil {
			return err
		}
	}
	switch {
	case s.plan && s.dryRun.On():
		return cli.Usagef("say either --plan or --dry-run: a plan is made for an operation that is stored; it touches no machine either way")
	case cmd.Flags().Changed("drain-timeout") && s.drainTimeout < time.Second:
		return cli.Usagef("--drain-timeout: %s is less than 1s", s.drainTimeout)
	}
	return nil
}

// Run finds the machines, asks where they weren't named, makes the operation, and follows it.
func (s *Start) Run(ctx context.Context, args []string) error {
	client, err := s.env.Client()
	if err != nil {
		return err
	}
	machines, err := lookup.Machines(ctx, client, metav1.ListOptions{})
	if err != nil {
		return err
	}
	picked, err := s.targets.pick(s.env, machines, args)
	if err != nil {
		return err
	}
	if picked.machines = s.needy(picked.machines); len(picked.machines) == 0 {
		s.env.Infof("%s", s.kind.Nothing)
		return nil
	}
	for _, left := range picked.leftOut {
		s.env.Infof("%s", left)
	}
	if s.kind.Judge != nil {
		if err := s.kind.Judge(ctx, client, picked.cluster, picked.machines); err != nil {
			return err
		}
	}
	if err := s.confirm(ctx, picked); err != nil {
		return err
	}
	if s.kind.Before != nil && !s.plan {
		if err := s.kind.Before(ctx, client, picked.cluster, s.dryRun.Options()); err != nil {
			return err
		}
	}
	made, err := client.IchorV1alpha1().TalosOperations().Create(ctx, s.operation(picked), metav1.CreateOptions{DryRun: s.dryRun.Options(), FieldManager: cli.FieldManager})
	if err != nil {
		return err
	}
	if s.plan {
		return s.showPlan(ctx, client, made)
	}
	if err := s.print.Print(s.env, made, s.dryRun.Note()); err != nil || s.dryRun.On() {
		return err
	}
	if !s.wait.Wanted(s.env) {
		s.env.Infof("Watch it with: %s", WatchCommand(s.env, made.Name))
		return nil
	}
	ended, err := Follow(ctx, s.env, client, &s.wait, made.Name)
	if err == nil {
		Tell(s.env, ended)
	}
	return err
}

// needy leaves out what has no need of the operation. That the engine would leave it out too says nothing to a person.
func (s *Start) needy(picked []*v1alpha1.TalosMachine) []*v1alpha1.TalosMachine {
	if s.kind.Needs == nil {
		return picked
	}
	var needy []*v1alpha1.TalosMachine
	for _, machine := range picked {
		switch {
		case s.kind.Needs(machine):
			needy = append(needy, machine)
		case !s.targets.bySelector():
			s.env.Infof("%s has no need of it; left out", screen.MachineTitle(machine))
		}
	}
	return needy
}

// confirm shows which machines a selector found; machines that were named need no second word, nor does what touches none.
func (s *Start) confirm(ctx context.Context, picked picked) error {
	if !s.targets.bySelector() || s.yes || s.plan || s.dryRun.On() {
		return nil
	}
	count := screen.Plural(len(picked.machines), "machine", "machines")
	if !s.env.CanAsk() {
		return cli.Usagef("%s of cluster %s fit, and nobody can be asked here whether those are meant: name them, or say --yes", count, picked.cluster)
	}
	rows := make([][]string, 0, len(picked.machines))
	for _, machine := range picked.machines {
		row := []string{"  " + screen.MachineTitle(machine), string(machine.Spec.Role), machine.Name}
		if s.kind.About != nil {
			row = append(row, s.kind.About(machine))
		}
		rows = append(rows, row)
	}
	for _, line := range screen.Columns(rows) {
		s.env.Infof("%s", line)
	}
	manner := ""
	if s.kind.Manner != nil {
		manner = s.kind.Manner()
	}
	yes, err := s.asker().Confirm(ctx, fmt.Sprintf("%s %s of cluster %s, %s?", s.kind.Verb, count, picked.cluster, cmp.Or(manner, "one at a time")))
	switch {
	case errors.Is(err, prompt.ErrAborted), err == nil && !yes:
		return cli.Cancelled()
	default:
		return err
	}
}

func (s *Start) asker() prompt.Asker { return Asker(s.env) }

// Asker draws questions in a terminal, and asks line by line where those can't be drawn or aren't wanted.
func Asker(env *cli.Env) prompt.Asker {
	if env.CanRedraw() {
		return prompt.NewPages(env.In, env.ErrOut)
	}
	return prompt.NewLines(env.In, env.ErrOut)
}

// operation names the machines one by one, also where a selector found them: what is done is what was shown.
func (s *Start) operation(picked picked) *v1alpha1.TalosOperation {
	made := &v1alpha1.TalosOperation{
		ObjectMeta: metav1.ObjectMeta{GenerateName: s.kind.Name + "-"},
		Spec: v1alpha1.TalosOperationSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: picked.cluster}, Mode: v1alpha1.OperationModeRun, Machines: &v1alpha1.OperationMachines{},
		},
	}
	for _, machine := range picked.machines {
		made.Spec.Machines.Names = append(made.Spec.Machines.Names, machine.Name)
	}
	s.kind.Set(&made.Spec)
	if s.plan {
		made.GenerateName += "plan-"
		made.Spec.Mode = v1alpha1.OperationModePlan
	}
	if s.drainTimeout > 0 {
		made.Spec.Drain.Timeout = &metav1.Duration{Duration: s.drainTimeout}
	}
	return made
}

// showPlan waits until the plan is made, and shows it.
func (s *Start) showPlan(ctx context.Context, client versioned.Interface, made *v1alpha1.TalosOperation) error {
	planned, err := Follow(ctx, s.env, client, &s.wait, made.Name)
	if planned == nil || planned.Status.Plan == nil {
		return err
	}
	if s.print.Asked() {
		return errors.Join(s.print.Print(s.env, planned, ""), err)
	}
	text := screen.Operation(planned, lookup.Titles(ctx, client), s.env.Name, s.env.Now(), s.env.OutStyle())
	if _, printed := fmt.Fprint(s.env.Out, text); printed != nil {
		return printed
	}
	s.env.Infof("No machine was touched. The plan is kept as operation %s.", planned.Name)
	return err
}
