// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/overview"
	"maesh.dev/ichor/cmd/ichor/internal/proposal"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// plan is what is to be done with one machine.
type plan struct {
	// machine as it was shown.
	machine  *v1alpha1.TalosMachine
	proposed proposal.Proposal
	decision proposal.Decision
	// shown is true when a person has seen the summary.
	shown bool
	// unchanged is true when there is nothing to do.
	unchanged bool
	// fault is why it can't be approved; the other machines go on.
	fault error
}

// plan decides about each machine: by flags, by the proposal, or by asking.
func (o *approveOptions) plan(ctx context.Context, targets []*v1alpha1.TalosMachine) ([]plan, error) {
	sequence := proposal.NewSequence(o.machines)
	plans := make([]plan, 0, len(targets))
	for _, machine := range targets {
		planned := o.decide(machine, sequence)
		if planned.fault == nil {
			sequence.Decided(machine, planned.decision)
		}
		plans = append(plans, planned)
	}
	if o.env.CanAsk() && !o.yes && (!o.decided || o.targets.bySelector()) {
		return o.ask(ctx, plans)
	}
	if o.targets.bySelector() && !o.yes {
		return nil, cli.Usagef("%d machines fit, and nobody can be asked here whether those are meant: name them, or say --yes", len(plans))
	}
	return plans, nil
}

// decide works out a plan without asking.
func (o *approveOptions) decide(machine *v1alpha1.TalosMachine, sequence *proposal.Sequence) plan {
	planned := plan{machine: machine, fault: blocked(machine, o.env.Name)}
	if planned.fault != nil {
		return planned
	}
	if o.fingerprint != "" && o.fingerprint != machine.Status.MaintenanceFingerprint {
		planned.fault = fmt.Errorf("it shows the fingerprint %s now, not %s: look at its console again, another machine may answer in its place",
			machine.Status.MaintenanceFingerprint, o.fingerprint)
		return planned
	}
	if machine.Spec.ApprovalState == v1alpha1.ApprovalApproved {
		return o.change(planned)
	}
	cluster, err := o.clusterOf(machine)
	if err != nil {
		planned.fault = err
		return planned
	}
	facts := sequence.Facts(machine, cluster)
	planned.proposed = proposal.Propose(facts)
	decision, faults := o.choices.Decide(o.start(planned.proposed, facts), machine)
	faults = append(faults, o.missing(machine, planned.proposed, decision)...)
	planned.decision, planned.fault = decision, cli.WithCode(cli.ExitUsage, errors.Join(faults...))
	return planned
}

// start is what flags are put over: with --yes the whole proposal, else only what can't be wrong.
func (o *approveOptions) start(proposed proposal.Proposal, facts proposal.Facts) proposal.Decision {
	if o.yes {
		start := proposed.Decision
		if role, err := proposal.ParseRole(o.choices.Role); err == nil && role != start.Role {
			start.Role, start.Hostname = role, proposal.Hostname(role, facts.Machines)
		}
		return start
	}
	start := proposal.Decision{Cluster: proposed.Cluster}
	if len(proposed.Candidates) == 1 && proposed.Candidates[0].Signature == "" {
		start.Disks = proposed.Disks
	}
	return start
}

// missing lists what must be decided and wasn't.
func (o *approveOptions) missing(machine *v1alpha1.TalosMachine, proposed proposal.Proposal, decision proposal.Decision) []error {
	if machine.Spec.Origin == v1alpha1.MachineAdopted {
		return nil
	}
	var faults []error
	if o.choices.Role == "" && decision.Role == "" {
		faults = append(faults, fmt.Errorf("--role: say controlplane or worker, or --yes to take the proposal (%s)", proposed.Role))
	}
	if _, found := decision.SystemDisk(machine.Status.Inventory); !found && o.choices.InstallDisk == "" {
		why := proposed.NoSystemDisk
		if why == "" {
			why = fmt.Sprintf("the proposed one (%s) has %s on it, so name it, or say --yes to have it wiped", proposed.Candidates[0].Device, proposed.Candidates[0].Signature)
		}
		faults = append(faults, fmt.Errorf("--install-disk: no disk is chosen to install on: %s", why))
	}
	return faults
}

// change is the plan for a machine that is approved already: flags change what may still be changed.
func (o *approveOptions) change(planned plan) plan {
	current := proposal.Current(planned.machine)
	decision, faults := o.choices.Decide(current, planned.machine)
	if o.cluster != "" {
		decision.Cluster = o.cluster
	}
	planned.decision = decision
	planned.fault = cli.WithCode(cli.ExitUsage, errors.Join(faults...))
	planned.unchanged = planned.fault == nil && apiequality.Semantic.DeepEqual(current, decision)
	return planned
}

// blocked says why a machine can't be approved, whatever is decided; the server says the same.
func blocked(machine *v1alpha1.TalosMachine, program string) error {
	advice := overview.Next(machine, program)
	waiting, doubted := overview.WaitsFor(machine)
	doubted = doubted && waiting.Condition == v1alpha1.ConditionIdentityResolved
	var err error
	switch {
	case machine.DeletionTimestamp != nil:
		err = errors.New("it is being removed")
	case machine.Spec.ApprovalState == v1alpha1.ApprovalApproved:
		return nil
	case machine.Spec.ApprovalState == v1alpha1.ApprovalRejected:
		err = fmt.Errorf("it was rejected; once its object is deleted it is found again: %s", advice.Command)
	case doubted:
		err = fmt.Errorf("it isn't sure which machine it is (%s); first: %s", waiting.What, advice.Command)
	case machine.Status.Inventory == nil && machine.Spec.Origin != v1alpha1.MachineAdopted:
		err = errors.New("its hardware wasn't looked at yet; try again in a moment")
	}
	return cli.WithCode(cli.ExitBlocked, err)
}

// clusterOf finds the cluster that a machine is to join.
func (o *approveOptions) clusterOf(machine *v1alpha1.TalosMachine) (*v1alpha1.TalosCluster, error) {
	name := lookup.ObjectName(o.cluster)
	if name == "" {
		name = machine.Spec.ClusterRef.Name
	}
	for i := range o.clusters {
		if o.clusters[i].Name == name {
			return &o.clusters[i], nil
		}
	}
	names := make([]string, 0, len(o.clusters))
	for _, cluster := range o.clusters {
		names = append(names, cluster.Name)
	}
	return nil, cli.Usagef("--cluster: there is no cluster %q; there are %q", name, names)
}
