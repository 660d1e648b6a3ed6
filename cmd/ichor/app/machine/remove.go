// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/progress"
	"maesh.dev/ichor/cmd/ichor/internal/prompt"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

// removeTimeout is how long a removal is watched: a drain has ten minutes, and a reset some.
const removeTimeout = 30 * time.Minute

type removeOptions struct {
	env              *cli.Env
	all              bool
	selector         string
	force, skipDrain bool
	orphan           bool
	consent          string
	wipeDisks        []string
	plan, yes        bool
	dryRun           cli.DryRun
	wait             progress.Wait
	asker            func() asker
}

func newRemove(env *cli.Env) *cobra.Command {
	options := &removeOptions{env: env, asker: func() asker { return newAsker(env) }}
	cmd := &cobra.Command{
		Use:   "remove NAME... | --all | -l SELECTOR",
		Short: "Remove machines: drain them, take them out of etcd, and wipe them",
		Long: `Remove machines from their cluster: the Node is drained, a control plane leaves etcd, the machine is wiped and its Node
deleted. It comes back in maintenance mode and is found as a new one. Which disks are wiped and which are kept is shown by
serial number first: the system disk and the ephemeral one are wiped, user volumes and storage only if --wipe-disk names them.

A control plane stays as long as etcd would lose its quorum without it. A drain is never forced: a pod that a
PodDisruptionBudget holds is named, and the removal waits; --skip-drain goes on without.

With --force a machine that doesn't answer is given up: another control plane takes its member out of etcd, its Node is
deleted, and as nothing on it was wiped it is quarantined, should it come back. That needs the machine's name, typed as
consent, or --consent; --yes isn't enough. A machine that does answer is wiped nevertheless.

` + namesHelp,
		Example: cli.Examples(env, `
			# What would be wiped and what kept?
			ichor machine remove worker-3 --plan

			ichor machine remove worker-3
			ichor machine remove worker-3 --wipe-disk serial=S2

			# A machine that burnt down
			ichor machine remove cp-2 --force
		`),
		ValidArgsFunction: lookup.CompleteMachines(env, nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := options.check(cmd, args); err != nil {
				return err
			}
			return options.run(cmd.Context(), args)
		},
	}
	options.addFlags(cmd)
	return cmd
}

func (o *removeOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&o.all, "all", false, "All machines, but for locked ones.")
	flags.StringVarP(&o.selector, "selector", "l", "", "All machines with these labels, for instance rack=1, but for locked ones.")
	flags.BoolVar(&o.skipDrain, "skip-drain", false, "Don't wait until the pods have moved away.")
	flags.BoolVar(&o.force, "force", false, "Give the machine up if it doesn't answer.")
	flags.StringVar(&o.consent, "consent", "", "The machine's name, as consent to --force where nobody can be asked.")
	flags.BoolVar(&o.orphan, "orphan", false, "Leave the machine as it is, with its Node and its member of etcd, and forget it.")
	flags.StringArrayVar(&o.wipeDisks, "wipe-disk", nil, "A disk to wipe besides, as serial=S2 or wwid=naa.5000c500a1b2c3d4. May be repeated.")
	flags.BoolVar(&o.plan, "plan", false, "Show what would be done, and do nothing.")
	flags.BoolVarP(&o.yes, "yes", "y", false, "Don't ask: consent to wiping what is shown.")
	o.dryRun.AddFlag(cmd)
	o.wait.AddFlags(cmd, "the machines are gone", removeTimeout)
}

// check refuses a call that makes no sense, before any work is done.
func (o *removeOptions) check(cmd *cobra.Command, args []string) error {
	bySelector := o.all || o.selector != ""
	switch {
	case len(args) == 0 && !bySelector:
		return cli.Usagef("%s needs a machine, or --all, or -l; see `%s --help`", cmd.CommandPath(), cmd.CommandPath())
	case len(args) > 0 && bySelector:
		return cli.Usagef("%s takes either names or --all and -l", cmd.CommandPath())
	case o.force && (bySelector || len(args) != 1):
		return cli.Usagef("--force is for one machine, by its name")
	case o.consent != "" && !o.force:
		return cli.Usagef("--consent is for --force")
	case o.orphan && (o.force || o.skipDrain || len(o.wipeDisks) > 0):
		return cli.Usagef("--orphan leaves the machine as it is: it goes with none of --force, --skip-drain and --wipe-disk")
	case len(o.wipeDisks) > 0 && (bySelector || len(args) != 1):
		return cli.Usagef("--wipe-disk is for one machine, by its name")
	}
	if _, err := labels.Parse(o.selector); err != nil {
		return cli.Usagef("--selector: %w", err)
	}
	_, err := o.disks()
	return errors.Join(err, o.dryRun.Check(), o.wait.Check())
}

// disks are those of --wipe-disk.
func (o *removeOptions) disks() ([]v1alpha1.DiskMatch, error) {
	var out []v1alpha1.DiskMatch
	for _, text := range o.wipeDisks {
		kind, value, _ := strings.Cut(text, "=")
		switch {
		case kind == "serial" && value != "":
			out = append(out, v1alpha1.DiskMatch{Serial: value})
		case kind == "wwid" && value != "":
			out = append(out, v1alpha1.DiskMatch{WWID: value})
		default:
			return nil, cli.Usagef("--wipe-disk: %q is neither serial=… nor wwid=…", text)
		}
	}
	return out, nil
}

func (o *removeOptions) run(ctx context.Context, args []string) error {
	client, err := o.env.Client()
	if err != nil {
		return err
	}
	machines, err := listMachines(ctx, client)
	if err != nil {
		return err
	}
	picked, err := o.pick(machines, args)
	if err != nil {
		return err
	}
	if err := o.show(ctx, client, picked); err != nil || o.plan {
		return err
	}
	consent, err := o.ask(ctx, picked)
	if err != nil {
		return err
	}
	outcome := &results{env: o.env, of: len(picked)}
	var going []*v1alpha1.TalosMachine
	for _, machine := range picked {
		err := o.remove(ctx, client, machine, consent)
		outcome.add(machine.Name, err)
		if err == nil {
			going = append(going, machine)
		}
	}
	if o.dryRun.On() || len(going) == 0 {
		return outcome.err()
	}
	return errors.Join(outcome.err(), o.follow(ctx, client, going))
}

// pick finds the machines among all that are known. All names that don't fit are told at once.
func (o *removeOptions) pick(machines []v1alpha1.TalosMachine, args []string) ([]*v1alpha1.TalosMachine, error) {
	var picked []*v1alpha1.TalosMachine
	var faults []error
	if len(args) == 0 {
		selector, err := labels.Parse(o.selector)
		if err != nil {
			return nil, err
		}
		for i := range machines {
			switch machine := &machines[i]; {
			case !selector.Matches(labels.Set(machine.Labels)):
			case machine.Spec.Locked:
				o.env.Infof("%s is locked (spec.locked); left out", screen.MachineTitle(machine))
			default:
				picked = append(picked, machine)
			}
		}
		if len(picked) == 0 {
			return nil, errors.New("no machine fits")
		}
		return picked, nil
	}
	for _, arg := range args {
		machine, err := lookup.Machine(machines, arg)
		switch {
		case err != nil:
			faults = append(faults, err)
		case machine.Spec.Locked:
			faults = append(faults, cli.WithCode(cli.ExitBlocked, fmt.Errorf("machine %s is locked; to unlock it: "+
				`kubectl patch talosmachine %s --type=merge -p '{"spec":{"locked":false}}'`, arg, machine.Name)))
		case !slices.Contains(picked, machine):
			picked = append(picked, machine)
		}
	}
	return picked, errors.Join(faults...)
}

// ask gets a person's consent: to what is wiped, and, with the name typed, to giving a machine up.
func (o *removeOptions) ask(ctx context.Context, picked []*v1alpha1.TalosMachine) (consent string, err error) {
	switch {
	case o.force:
		return o.askName(ctx, picked[0])
	case o.yes || o.dryRun.On():
		return "", nil
	case !o.env.CanAsk():
		return "", cli.Usagef("nobody can be asked here whether that is meant; say --yes, or look at it with --plan")
	}
	yes, err := o.asker().Confirm(ctx, fmt.Sprintf("Remove %s?", screen.Plural(len(picked), "machine", "machines")))
	if err != nil {
		return "", left(err)
	}
	if !yes {
		return "", cli.Cancelled()
	}
	return "", nil
}

// askName wants the name of a machine that may be given up, typed.
func (o *removeOptions) askName(ctx context.Context, machine *v1alpha1.TalosMachine) (string, error) {
	typed := o.consent
	if typed == "" && !o.env.CanAsk() {
		return "", cli.Usagef("nobody can be asked here whether %s may be given up; say --consent with its name, --yes isn't enough", screen.MachineTitle(machine))
	}
	if typed == "" {
		answers, err := o.asker().Ask(ctx, []prompt.Page{{Title: "Give up " + screen.MachineTitle(machine), Questions: []prompt.Question{{
			Key: "name", Title: "Type the machine's name to give it up if it doesn't answer",
		}}}})
		if err != nil {
			return "", left(err)
		}
		typed = answers["name"]
	}
	if typed = strings.TrimSpace(typed); typed == "" || typed != machine.Name && typed != machine.Spec.Hostname {
		return "", cli.WithCode(cli.ExitUsage, fmt.Errorf("%q isn't the machine's name (%s); nothing was changed", typed, screen.MachineTitle(machine)))
	}
	return machine.Name, nil
}

// remove writes how the machine is to be removed, and deletes its object: the very one that was shown.
func (o *removeOptions) remove(ctx context.Context, client versioned.Interface, machine *v1alpha1.TalosMachine, consent string) error {
	machines := client.IchorV1alpha1().TalosMachines()
	if patch := o.patch(machine, consent); patch != nil {
		body, err := json.Marshal(patch)
		if err != nil {
			return err
		}
		if _, err := machines.Patch(ctx, machine.Name, types.MergePatchType, body, metav1.PatchOptions{DryRun: o.dryRun.Options(), FieldManager: cli.FieldManager}); err != nil {
			return err
		}
	}
	if machine.DeletionTimestamp == nil {
		options := metav1.DeleteOptions{DryRun: o.dryRun.Options(), Preconditions: &metav1.Preconditions{UID: &machine.UID}}
		if err := machines.Delete(ctx, machine.Name, options); err != nil {
			return err
		}
	}
	note := "is being removed"
	if o.dryRun.On() {
		note = "would be removed (server dry run)"
	}
	_, err := fmt.Fprintf(o.env.Out, "talosmachine.%s/%s %s\n", v1alpha1.GroupName, machine.Name, note)
	return err
}

// patch is what is changed before the object is deleted; nil if nothing.
func (o *removeOptions) patch(machine *v1alpha1.TalosMachine, consent string) any {
	removal := map[string]any{}
	if earlier := machine.Spec.Removal; earlier != nil && earlier.Force && !o.force && machine.DeletionTimestamp == nil {
		// Of a removal that was refused: the consent was to that one.
		removal["force"], removal["consent"] = nil, nil
	}
	if o.skipDrain {
		removal["skipDrain"] = true
	}
	if o.force {
		removal["force"], removal["consent"] = true, consent
	}
	if disks, err := o.disks(); err == nil && len(disks) > 0 {
		removal["wipeDisks"] = disks
	}
	spec := map[string]any{}
	if len(removal) > 0 {
		spec["removal"] = removal
	}
	if o.orphan {
		spec["deletionPolicy"] = v1alpha1.DeletionOrphan
	}
	if len(spec) == 0 {
		return nil
	}
	return map[string]any{"metadata": map[string]any{"uid": machine.UID}, "spec": spec}
}

// follow shows how far the removals are, until the objects are gone.
func (o *removeOptions) follow(ctx context.Context, client versioned.Interface, going []*v1alpha1.TalosMachine) error {
	again := "kubectl get talosmachines -w"
	if len(going) == 1 {
		again = fmt.Sprintf("%s machine show %s", o.env.Name, going[0].Name)
	}
	if !o.wait.Wanted(o.env) {
		o.env.Infof("Watch it with: %s", again)
		return nil
	}
	board := progress.NewRemoval(progress.Names(going))
	return o.wait.Follow(ctx, o.env, board, progress.WatchMachines(client, board, o.env.Now), again)
}
