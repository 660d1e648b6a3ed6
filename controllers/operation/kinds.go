// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// The steps that several kinds have, as they are called in plans and in status.
const (
	stepGates    = "Gates"
	stepOwnGates = "OperationGates"
	stepSnapshot = "Snapshot"
	stepCordon   = "Cordon"
	stepDrain    = "Drain"
	stepHandOver = "HandOver"
	stepReboot   = "Reboot"
	stepVerify   = "Verify"
	stepUncordon = "Uncordon"
)

// kind is a type of operation. Each has a file of its own, and a line in kindOf.
type kind struct {
	// name of the member of the union.
	name string
	// gather asks for what the plan must know beyond the objects of Ichor. nil: nothing.
	gather func(*run, context.Context, *planning) error
	// stays says that the machines stay up: their etcd isn't missed.
	stays bool
	// mends says that going down may be what mends a machine, so that its own etcd member may be unwell.
	mends bool
	// plan adds to a plan what the kind alone knows: versions, checks, risks. It may leave machines out that have no need of
	// the operation. nil: nothing.
	plan func(*planning)
	// order says which of two machines comes first. nil: control planes, then workers, each by name.
	order func(a, b *v1alpha1.TalosMachine) int
	// rounds are steps that every machine of the plan gets through before the first one is begun, one round after the other.
	rounds []round
	// steps are what is done on a machine once it is begun, in order. gated says that the operation has gates of its own.
	steps func(m *v1alpha1.TalosMachine, gated bool) []string
	// own are the steps that only this kind has, or does in another way.
	own map[string]step
	// bootMark is the step before which a machine's boot id is written down: a reboot after that is the one that is meant,
	// whoever brings it about. Empty if no machine reboots.
	bootMark string
	// still looks at a machine that is about to be begun, as the plan may be old: nothing is left to do on it (needless), or it
	// became what the plan doesn't fit (failed). nil: neither is.
	still func(*visit, context.Context) (outcome, error)
	// beforeReboot is asked each time before a machine is told to reboot; anything but done keeps it from being told.
	beforeReboot func(*visit, context.Context) (outcome, error)
	// booted looks at a machine that is in another boot, which needn't be ready yet; anything but done ends the attempt.
	booted func(*visit, context.Context, talos.ConfiguredNode) (outcome, error)
	// verified looks at what is particular to the kind on a machine that is back, on the connection that it was asked on.
	verified func(*visit, context.Context, talos.ConfiguredNode) (outcome, error)
	// putBack is asked before a machine of a cancelled operation is uncordoned.
	putBack func(*visit, context.Context) (outcome, error)
}

// round is a step that is done on all machines before the next is. It puts nothing aside: an operation that is cancelled
// in one has nothing to put back.
type round struct {
	// step by its name, in own of the kind.
	step string
	// parallel is how many machines are in it at once; at 1 the next is begun when one is through.
	parallel int
	// on tells whether a machine takes part; nil: each does.
	on func(*v1alpha1.TalosMachine) bool
}

// kindOf is the kind of an operation, and whether it can be carried out.
func kindOf(spec *v1alpha1.TalosOperationSpec) (kind, bool) {
	switch {
	case spec.Reboot != nil:
		return rebootKind(), true
	case spec.ConfigRollout != nil:
		return configRolloutKind(), true
	case spec.TalosUpgrade != nil:
		return talosUpgradeKind(), true
	case spec.KubernetesUpgrade != nil:
		return kubernetesUpgradeKind(), true
	case spec.CiliumUpgrade != nil:
		return kind{name: "ciliumUpgrade"}, false
	case spec.IchorUpgrade != nil:
		return kind{name: "ichorUpgrade"}, false
	case spec.Shutdown != nil:
		return shutdownKind(spec.Machines == nil), true
	case spec.EtcdRestore != nil:
		return kind{name: "etcdRestore"}, false
	case spec.RotateCA != nil:
		return kind{name: "rotateCA"}, false
	default:
		return kind{name: "rotateKey"}, false
	}
}

// planning is a plan in the making.
type planning struct {
	operation *v1alpha1.TalosOperation
	cluster   *v1alpha1.TalosCluster
	// all are all machines that there are; chosen those that the operation is about.
	all, chosen []*v1alpha1.TalosMachine
	plan        *v1alpha1.OperationPlan
	// images are the installers that machines are to get, by the machine's name.
	images map[string]string
	now    metav1.Time
	// kubernetes is what was gathered for a kubernetesUpgrade.
	kubernetes *kubernetesFound
}

// check adds a check.
func (p *planning) check(name string, result v1alpha1.CheckResult, message string) {
	p.plan.Checks = append(p.plan.Checks, v1alpha1.OperationCheck{Name: name, Result: result, Message: message})
}

// stepsOf are all steps of a machine: those of the rounds, then its own.
func (k kind) stepsOf(m *v1alpha1.TalosMachine, gated bool) []string {
	var steps []string
	for _, round := range k.rounds {
		if round.on == nil || round.on(m) {
			steps = append(steps, round.step)
		}
	}
	return append(steps, k.steps(m, gated)...)
}

// isRound tells whether a step is one of a round.
func (k kind) isRound(step string) bool {
	return slices.ContainsFunc(k.rounds, func(r round) bool { return r.step == step })
}

// around are the steps of a machine that goes down and comes back: what is done before it reboots goes in the middle.
func around(m *v1alpha1.TalosMachine, gated bool, middle ...string) []string {
	steps := []string{stepGates}
	if gated {
		steps = append(steps, stepOwnGates)
	}
	if m.Spec.Role == v1alpha1.RoleControlPlane {
		steps = append(steps, stepSnapshot)
	}
	steps = slices.Concat(steps, []string{stepCordon, stepDrain}, middle)
	if m.Spec.Role == v1alpha1.RoleControlPlane {
		steps = append(steps, stepHandOver)
	}
	return append(steps, stepReboot, stepVerify, stepUncordon)
}

// harmless tells whether nothing is put aside before a step, and in it.
func (k kind) harmless(step string) bool {
	return k.isRound(step) || slices.Contains([]string{"", stepGates, stepOwnGates, stepSnapshot}, step)
}

// stepOf is a step by its name.
func (k kind) stepOf(name string) step {
	if own, there := k.own[name]; there {
		return own
	}
	return commonSteps()[name]
}

// commonSteps are the steps that several kinds have.
func commonSteps() map[string]step {
	return map[string]step{
		stepGates:    {try: (*visit).passGates, patience: lasting(30 * time.Minute), waits: true},
		stepOwnGates: {try: (*visit).askGates, patience: gatePatience, waits: true},
		stepSnapshot: {try: (*visit).snapshot, patience: lasting(snapshotTimeout)},
		stepCordon:   {try: (*visit).cordon, patience: lasting(5 * time.Minute)},
		stepDrain:    {try: (*visit).drain, patience: drainPatience},
		stepHandOver: {try: (*visit).handOver, patience: lasting(5 * time.Minute)},
		stepReboot:   {try: (*visit).reboot, patience: lasting(20 * time.Minute), finishes: true},
		stepVerify:   {try: (*visit).verify, patience: lasting(20 * time.Minute), finishes: true},
		stepUncordon: {try: (*visit).uncordon, patience: lasting(5 * time.Minute)},
	}
}
