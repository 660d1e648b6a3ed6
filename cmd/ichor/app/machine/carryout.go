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
		answer, err := trial.send(ctx, plan{machine: target.Machine, decision: target.Decision})
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

// carryOut approves what was tried, and tells of each machine. A dry run tells what the server answered.
func (p *filePlan) carryOut(ctx context.Context, targets []approvalplan.Target, tried map[string]*v1alpha1.TalosMachine) error {
	p.remarks.aloud()
	plans := make([]plan, 0, len(targets))
	for _, target := range targets {
		plans = append(plans, plan{machine: target.Machine, decision: target.Decision, unchanged: target.Unchanged, shown: true})
	}
	if p.dryRun.On() {
		for _, plan := range plans {
			machine := plan.machine
			if answer := tried[machine.Name]; answer != nil {
				machine = answer
			}
			if err := p.tell(plan, machine); err != nil {
				return err
			}
		}
		return nil
	}
	approved, outcome := p.approveAll(ctx, plans)
	if err := p.follow(ctx, approved); err != nil && outcome.err() == nil {
		return err
	}
	return outcome.err()
}
