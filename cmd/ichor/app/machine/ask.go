// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/prompt"
	"maesh.dev/ichor/cmd/ichor/internal/proposal"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
)

// asker asks a person.
type asker = prompt.Asker

// newAsker draws pages in a terminal, and asks line by line where those can't be drawn or aren't wanted.
func newAsker(env *cli.Env) asker {
	if env.CanRedraw() {
		return prompt.NewPages(env.In, env.ErrOut)
	}
	return prompt.NewLines(env.In, env.ErrOut)
}

// ask lets a person decide about each machine, and asks for consent once.
func (o *approveOptions) ask(ctx context.Context, plans []plan) ([]plan, error) {
	asker, several := o.asker(), len(plans) > 1
	sequence := proposal.NewSequence(o.machines)
	var open []*plan
	for i := range plans {
		if !o.isOpen(&plans[i]) {
			continue
		}
		if err := o.decideWith(ctx, asker, &plans[i], several, sequence); err != nil {
			return nil, left(err)
		}
		sequence.Decided(plans[i].machine, plans[i].decision)
		open = append(open, &plans[i])
	}
	if len(open) == 0 {
		return plans, nil
	}
	style := o.env.ErrStyle()
	for _, planned := range open {
		planned.shown = true
		_, _ = fmt.Fprintln(o.env.ErrOut, screen.Summary(planned.machine, planned.decision, style))
	}
	question := "Approve it, and wipe what is listed to be wiped?"
	if several {
		question = fmt.Sprintf("Approve these %d machines, and wipe what is listed to be wiped?", len(open))
	}
	yes, err := asker.Confirm(ctx, question)
	if err != nil {
		return nil, left(err)
	}
	if !yes {
		return nil, cli.Cancelled()
	}
	return plans, nil
}

// isOpen is true for a machine about which there is something to ask: one that isn't blocked or approved already. That
// something isn't decided yet is no fault where it can be asked.
func (o *approveOptions) isOpen(planned *plan) bool {
	if planned.unchanged {
		return false
	}
	return planned.fault == nil || (cli.Code(planned.fault) == cli.ExitUsage && !o.decided)
}

// decideWith decides about one machine: by flags if there were any, by the proposal if it is one of several and the
// proposal leaves nothing open, else by asking.
func (o *approveOptions) decideWith(ctx context.Context, asker asker, planned *plan, several bool, sequence *proposal.Sequence) error {
	planned.fault = nil
	if o.decided {
		return nil
	}
	cluster, err := o.clusterOf(planned.machine)
	if err != nil {
		return err
	}
	facts := sequence.Facts(planned.machine, cluster)
	planned.proposed = proposal.Propose(facts)
	if several && planned.proposed.NoSystemDisk == "" {
		planned.decision = planned.proposed.Decision
		return nil
	}
	_, _ = fmt.Fprintln(o.env.ErrOut, screen.Identity(planned.machine, o.env.ErrStyle()))
	answers, err := asker.Ask(ctx, approvalForm(facts, planned.proposed))
	if err != nil {
		return err
	}
	decision, faults := choicesOf(answers).Decide(proposal.Decision{Cluster: planned.proposed.Cluster}, planned.machine)
	planned.decision = decision
	return errors.Join(faults...)
}

// left turns leaving a form into a cancellation.
func left(err error) error {
	if errors.Is(err, prompt.ErrAborted) {
		return cli.Cancelled()
	}
	return err
}
