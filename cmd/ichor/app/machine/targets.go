// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

// targets are the machines that a verb is for: named ones, or all pending ones that a selector fits. There is no implicit
// target.
type targets struct {
	all      bool
	selector string
}

func (t *targets) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&t.all, "all", false, "All pending machines.")
	cmd.Flags().StringVarP(&t.selector, "selector", "l", "", "All pending machines with these labels, for instance rack=1.")
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
	}
	if _, err := labels.Parse(t.selector); err != nil {
		return cli.Usagef("--selector: %w", err)
	}
	return nil
}

// pick finds the machines among all that are known. All names that don't fit are told at once.
func (t *targets) pick(machines []v1alpha1.TalosMachine, args []string) ([]*v1alpha1.TalosMachine, error) {
	var picked []*v1alpha1.TalosMachine
	if t.bySelector() {
		selector, err := labels.Parse(t.selector)
		if err != nil {
			return nil, err
		}
		for i := range machines {
			machine := &machines[i]
			if machine.Spec.ApprovalState == v1alpha1.ApprovalPending && selector.Matches(labels.Set(machine.Labels)) {
				picked = append(picked, machine)
			}
		}
		if len(picked) == 0 {
			return nil, errors.New("no pending machine fits")
		}
		return picked, nil
	}
	var faults []error
	for _, arg := range args {
		machine, err := lookup.Machine(machines, arg)
		switch {
		case err != nil:
			faults = append(faults, err)
		case !slices.Contains(picked, machine):
			picked = append(picked, machine)
		}
	}
	return picked, errors.Join(faults...)
}

func listMachines(ctx context.Context, client versioned.Interface) ([]v1alpha1.TalosMachine, error) {
	return lookup.Machines(ctx, client, metav1.ListOptions{})
}

func isPending(machine *v1alpha1.TalosMachine) bool {
	return machine.Spec.ApprovalState != v1alpha1.ApprovalApproved && machine.Spec.ApprovalState != v1alpha1.ApprovalRejected
}
