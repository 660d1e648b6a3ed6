// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"maesh.dev/ichor/cmd/ichor/internal/approvalplan"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// atOnce is how many machines of a plan are tried or approved at the same time: enough to hide the way to the server, few
// enough to leave it room for others.
const atOnce = 8

// tryAll has the server check every approval without storing it. One refusal, and the plan is over. The answers are by the
// machines' names.
func (p *filePlan) tryAll(ctx context.Context, fresh []approvalplan.Target) (map[string]*v1alpha1.TalosMachine, error) {
	trial := *p.approveOptions
	trial.dryRun = cli.ServerDryRun()
	answers := make(map[string]*v1alpha1.TalosMachine, len(fresh))
	var faults []*approvalplan.Fault
	var mutex sync.Mutex
	each(len(fresh), func(n int) {
		target := fresh[n]
		answer, err := trial.send(aboutMachine(ctx, target.Machine.Name), plan{machine: target.Machine, decision: target.Decision})
		mutex.Lock()
		defer mutex.Unlock()
		if err != nil {
			faults = append(faults, refusals(target.Item, err)...)
			return
		}
		answers[target.Machine.Name] = answer
	})
	return answers, approvalplan.Join(onlyForbidden(faults, len(fresh)))
}

// each does something for every number below count, some at a time.
func each(count int, do func(n int)) {
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for n := range count {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			do(n)
		})
	}
	group.Wait()
}

// refusals turn the server's answer into faults at the lines that they are about.
func refusals(item *approvalplan.Item, err error) []*approvalplan.Fault {
	text := strings.Join(cli.Explain(err), " ")
	var connection *url.Error
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, cli.ErrInterrupted):
		return []*approvalplan.Fault{item.Fault(cli.ExitInterrupted, "", "interrupted before the server had checked it")}
	case errors.As(err, &connection):
		return []*approvalplan.Fault{item.Fault(cli.ExitFailed, "", text)}
	case !errors.As(err, &status):
		return []*approvalplan.Fault{item.Fault(cli.ExitBlocked, "", text)}
	}
	details := status.Status().Details
	reasoned := details != nil && len(details.Causes) > 0
	switch code := status.Status().Code; {
	case apierrors.IsInvalid(err) && reasoned:
		faults := make([]*approvalplan.Fault, 0, len(details.Causes))
		for _, cause := range details.Causes {
			faults = append(faults, item.Fault(cli.ExitBlocked, strings.TrimPrefix(cause.Field, "spec."), cause.Message))
		}
		return faults
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err) && !reasoned:
		return []*approvalplan.Fault{item.Fault(cli.ExitForbidden, "", text)}
	case code >= 400 && code < 500 && reasoned:
		return []*approvalplan.Fault{item.Fault(cli.ExitBlocked, strings.TrimPrefix(details.Causes[0].Field, "spec."), details.Causes[0].Message)}
	case code >= 400 && code < 500:
		return []*approvalplan.Fault{item.Fault(cli.ExitBlocked, "", text)}
	default:
		return []*approvalplan.Fault{item.Fault(cli.ExitFailed, "", text)}
	}
}

// onlyForbidden says once that someone may approve nothing, instead of once for each machine.
func onlyForbidden(faults []*approvalplan.Fault, machines int) []*approvalplan.Fault {
	if machines < 2 || len(faults) != machines {
		return faults
	}
	for _, fault := range faults {
		if fault.Code != cli.ExitForbidden {
			return faults
		}
	}
	once := *faults[0]
	once.What += fmt.Sprintf(" (and so for all %d machines)", machines)
	return []*approvalplan.Fault{&once}
}

// carryOut approves what was tried, and tells of each machine. Control planes come first, one after another in the file's
// order, because each takes a place in its cluster and the first to be approved is the first to join.
func (p *filePlan) carryOut(ctx context.Context, targets []approvalplan.Target, tried map[string]*v1alpha1.TalosMachine) error {
	p.remarks.aloud()
	outcome := &results{env: p.env, of: len(targets)}
	var approved []*v1alpha1.TalosMachine
	var mutex sync.Mutex
	told := func(target approvalplan.Target, machine *v1alpha1.TalosMachine, err error) {
		mutex.Lock()
		defer mutex.Unlock()
		if err == nil {
			err = p.tell(target, machine)
		}
		outcome.add(target.Machine.Name, err)
		if machine != nil {
			approved = append(approved, machine)
		}
	}
	var others []approvalplan.Target
	for _, target := range targets {
		switch {
		case target.Unchanged:
			told(target, target.Machine, nil)
		case p.dryRun.On():
			told(target, tried[target.Machine.Name], nil)
		case target.Decision.Role == v1alpha1.RoleControlPlane:
			machine, err := p.write(ctx, target)
			told(target, machine, err)
		default:
			others = append(others, target)
		}
	}
	each(len(others), func(n int) {
		machine, err := p.write(ctx, others[n])
		told(others[n], machine, err)
	})
	if err := p.follow(ctx, approved); err != nil && outcome.err() == nil {
		return err
	}
	return outcome.err()
}

func (p *filePlan) write(ctx context.Context, target approvalplan.Target) (*v1alpha1.TalosMachine, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("not approved: %w", context.Cause(ctx))
	}
	return p.send(aboutMachine(ctx, target.Machine.Name), plan{machine: target.Machine, decision: target.Decision})
}

func (p *filePlan) tell(target approvalplan.Target, machine *v1alpha1.TalosMachine) error {
	if target.Unchanged {
		p.env.Infof("%s is approved already%s; unchanged", screen.MachineTitle(machine), approvedBy(machine))
		return p.print.PrintUnchanged(p.env, machine)
	}
	return p.print.Print(p.env, machine, p.dryRun.Note())
}
