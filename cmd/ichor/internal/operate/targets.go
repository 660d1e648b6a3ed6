// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// maxNames is how many machines an operation may name.
const maxNames = 1000

// targets are the machines that an operation is for: named ones, or all that run in a cluster and that a selector fits.
// There is no implicit target.
type targets struct {
	all               bool
	selector, cluster string
}

// picked are machines of one cluster.
type picked struct {
	cluster  string
	machines []*v1alpha1.TalosMachine
	// leftOut says which fit and were left out, and why.
	leftOut []string
}

func (t *targets) addFlags(cmd *cobra.Command, env *cli.Env) {
	cmd.Flags().BoolVar(&t.all, "all", false, "All machines of the cluster, but for locked ones.")
	cmd.Flags().StringVarP(&t.selector, "selector", "l", "", "All machines of the cluster with these labels, for instance rack=1, but for locked ones.")
	cmd.Flags().StringVar(&t.cluster, "cluster", "", "Of --all and -l, only machines of this TalosCluster.")
	_ = cmd.RegisterFlagCompletionFunc("cluster", lookup.CompleteClusters(env))
}

// bySelector is true when the machines weren't named one by one.
func (t *targets) bySelector() bool { return t.all || t.selector != "" }

// check refuses a call that names no machine, or names them twice over.
func (t *targets) check(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0 && !t.bySelector():
		return cli.Usagef("%s needs a machine, or --all, or -l; see `%s --help`", cmd.CommandPath(), cmd.CommandPath())
	case len(args) > 0 && t.bySelector():
		return cli.Usagef("%s takes either names or --all and -l", cmd.CommandPath())
	case len(args) > 0 && t.cluster != "":
		return cli.Usagef("%s takes --cluster with --all or -l; machines that are named have theirs", cmd.CommandPath())
	}
	if _, err := labels.Parse(t.selector); err != nil {
		return cli.Usagef("--selector: %w", err)
	}
	return nil
}

// pick finds the machines among all that are known. All names that don't fit are told at once.
func (t *targets) pick(env *cli.Env, machines []v1alpha1.TalosMachine, args []string) (picked, error) {
	var chosen picked
	var err error
	if t.bySelector() {
		chosen, err = t.bySelection(machines)
	} else {
		chosen, err = byName(machines, args, env.Name)
	}
	if err != nil {
		return picked{}, err
	}
	clusters := map[string]int{}
	for _, machine := range chosen.machines {
		clusters[machine.Spec.ClusterRef.Name]++
		chosen.cluster = machine.Spec.ClusterRef.Name
	}
	switch {
	case len(clusters) > 1:
		return picked{}, cli.Usagef("those machines are of %d clusters (%s), and an operation is about one: make one for each, with names or with --cluster",
			len(clusters), strings.Join(slices.Sorted(maps.Keys(clusters)), ", "))
	case len(chosen.machines) > maxNames:
		return picked{}, cli.Usagef("%d machines fit, and an operation takes at most %d: make several, with -l", len(chosen.machines), maxNames)
	}
	return chosen, nil
}

func (t *targets) bySelection(machines []v1alpha1.TalosMachine) (picked, error) {
	selector, err := labels.Parse(t.selector)
	if err != nil {
		return picked{}, cli.Usagef("--selector: %w", err)
	}
	var chosen picked
	for i := range machines {
		machine := &machines[i]
		if notRunning(machine) != "" || !selector.Matches(labels.Set(machine.Labels)) || t.cluster != "" && machine.Spec.ClusterRef.Name != lookup.ObjectName(t.cluster) {
			continue
		}
		if machine.Spec.Locked {
			chosen.leftOut = append(chosen.leftOut, screen.MachineTitle(machine)+" is locked (spec.locked); left out")
			continue
		}
		chosen.machines = append(chosen.machines, machine)
	}
	if len(chosen.machines) == 0 {
		return picked{}, errors.Join(append([]error{errors.New("no machine that runs in a cluster fits")}, asErrors(chosen.leftOut)...)...)
	}
	return chosen, nil
}

func asErrors(texts []string) []error {
	made := make([]error, 0, len(texts))
	for _, text := range texts {
		made = append(made, errors.New(text))
	}
	return made
}

func byName(machines []v1alpha1.TalosMachine, args []string, program string) (picked, error) {
	var chosen picked
	var faults []error
	for _, arg := range args {
		machine, err := lookup.Machine(machines, arg)
		switch {
		case err != nil:
			faults = append(faults, err)
		case notRunning(machine) != "":
			faults = append(faults, cli.WithCode(cli.ExitBlocked, fmt.Errorf("machine %s %s; `%s machine show %s` shows it", arg, notRunning(machine), program, machine.Name)))
		case machine.Spec.Locked:
			faults = append(faults, cli.WithCode(cli.ExitBlocked, fmt.Errorf("machine %s is locked; to unlock it: "+
				`kubectl patch talosmachine %s --type=merge -p '{"spec":{"locked":false}}'`, arg, machine.Name)))
		case !slices.Contains(chosen.machines, machine):
			chosen.machines = append(chosen.machines, machine)
		}
	}
	return chosen, errors.Join(faults...)
}

// notRunning says why a machine doesn't run in a cluster, as far as its object says; empty if it does. The engine has the
// same rule: what it would refuse is said before anything is made.
func notRunning(machine *v1alpha1.TalosMachine) string {
	switch {
	case machine.DeletionTimestamp != nil:
		return "is being removed"
	case machine.Spec.ApprovalState != v1alpha1.ApprovalApproved:
		return fmt.Sprintf("is %s: it runs in no cluster", machine.Spec.ApprovalState)
	case machine.Spec.Origin != v1alpha1.MachineAdopted && (machine.Status.Provisioning == nil || machine.Status.Provisioning.AppliedAt == nil):
		return "has no configuration yet: it is still being installed"
	default:
		return ""
	}
}
