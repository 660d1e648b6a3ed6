// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"sync"

	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// answer is what became of one plan that was sent.
type answer struct {
	machine *v1alpha1.TalosMachine
	err     error
}

// approveAll sends all plans, some at a time, and tells of each in their order. Control planes go one after another: each
// takes a place in its cluster, and who is named first gets the first one.
func (o *approveOptions) approveAll(ctx context.Context, plans []plan) ([]*v1alpha1.TalosMachine, *results) {
	answers := make([]chan answer, len(plans))
	var controlPlanes, others []int
	for i := range plans {
		answers[i] = make(chan answer, 1)
		switch plan := &plans[i]; {
		case plan.fault != nil || plan.unchanged:
			answers[i] <- answer{plan.machine, plan.fault}
		case plan.decision.Role == v1alpha1.RoleControlPlane:
			controlPlanes = append(controlPlanes, i)
		default:
			others = append(others, i)
		}
	}
	send := func(i int) {
		machine, err := o.send(ctx, plans[i])
		answers[i] <- answer{machine, err}
	}
	var running sync.WaitGroup
	running.Go(func() {
		for _, i := range controlPlanes {
			send(i)
		}
	})
	running.Go(func() { each(len(others), func(n int) { send(others[n]) }) })
	outcome := &results{env: o.env, of: len(plans)}
	var approved []*v1alpha1.TalosMachine
	for i, plan := range plans {
		answered := <-answers[i]
		err := answered.err
		if err == nil {
			approved = append(approved, answered.machine)
			err = o.tell(plan, answered.machine)
		}
		outcome.add(plan.machine.Name, err)
	}
	running.Wait()
	return approved, outcome
}

// tell says what was approved.
func (o *approveOptions) tell(plan plan, machine *v1alpha1.TalosMachine) error {
	if plan.unchanged {
		o.env.Infof("%s is approved already%s; unchanged", screen.MachineTitle(machine), approvedBy(machine))
		return o.print.PrintUnchanged(o.env, machine)
	}
	if !plan.shown && !o.print.Asked() {
		_, _ = fmt.Fprintln(o.env.ErrOut, screen.Summary(plan.machine, plan.decision, o.env.ErrStyle()))
	}
	return o.print.Print(o.env, machine, o.dryRun.Note())
}
