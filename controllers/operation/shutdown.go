// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

const (
	// stepPowerOff shuts a machine down.
	stepPowerOff = "PowerOff"
	// stepPowerOffAll shuts the control planes of a whole cluster down, all in one go.
	stepPowerOffAll = "PowerOffControlPlanes"
)

const (
	// silence is how long a machine that was told to shut down must not answer until it counts as off.
	silence = 20 * time.Second
	// unanswered is how long a cluster waits with its shutdown for a machine that doesn't answer.
	unanswered = time.Minute
	// shutdownPatience is how long a machine that was told may go on running before it is told again.
	shutdownPatience = 2 * time.Minute
	// overdue is how long after it was meant a control plane is still shut down with its cluster. Later somebody has
	// powered the cluster on again, and doesn't expect it to go.
	overdue = 10 * time.Minute
)

// shutdowner is a node that can be shut down.
type shutdowner interface {
	Shutdown(ctx context.Context) error
}

// shutdownKind powers machines off. Some machines go one at a time, drained, and never at the cost of etcd's quorum, as for a
// reboot; their Nodes are uncordoned at once, as nothing is scheduled onto one that isn't ready, and so need nobody when they
// come back. A whole cluster has no place to drain to and no quorum to keep: its workers go together, and then, with a
// snapshot of etcd taken, its control planes. With most of those the API goes, and with it the journal: that all are to go is
// in it before the first is told.
func shutdownKind(whole bool) kind {
	k := kind{name: "shutdown", order: workersFirst, mends: true, own: map[string]step{
		stepPowerOff: {try: (*visit).powerOff, patience: lasting(15 * time.Minute), finishes: !whole},
	}}
	if !whole {
		k.steps = func(m *v1alpha1.TalosMachine, gated bool) []string {
			var steps []string
			for _, name := range around(m, gated) {
				switch name {
				case stepReboot:
					steps = append(steps, stepPowerOff)
				case stepVerify:
				default:
					steps = append(steps, name)
				}
			}
			return steps
		}
		return k
	}
	controlPlane := func(m *v1alpha1.TalosMachine) bool { return m.Spec.Role == v1alpha1.RoleControlPlane }
	k.stays = true
	k.own[stepPowerOffAll] = k.own[stepPowerOff]
	k.rounds = []round{
		{step: stepSnapshot, parallel: 1, on: controlPlane},
		{step: stepPowerOff, parallel: maxTogether, on: func(m *v1alpha1.TalosMachine) bool { return !controlPlane(m) }},
		{step: stepPowerOffAll, parallel: maxTogether, on: controlPlane},
	}
	k.steps = func(*v1alpha1.TalosMachine, bool) []string { return nil }
	k.plan = func(p *planning) {
		p.plan.Risks = append(p.plan.Risks,
			"the API is away from when most control planes are off; the operation is found finished when they are powered on again",
			"pods aren't drained: they have no other place")
	}
	return k
}

// workersFirst puts control planes last, each kind of machine by name.
func workersFirst(a, b *v1alpha1.TalosMachine) int {
	if a.Spec.Role != b.Spec.Role {
		if a.Spec.Role == v1alpha1.RoleControlPlane {
			return 1
		}
		return -1
	}
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(string(a.UID), string(b.UID)))
}

// powerOff tells a machine to shut down, once its boot id is on record, and waits until it is silent. One that is found in
// another boot was off, and is back.
func (v *visit) powerOff(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	node, err := v.reach(ctx, v.m)
	if err != nil && v.record.State == v1alpha1.StepActed && v.now.Sub(v.record.At.Time) >= silence {
		if err := v.notePoweredOff(ctx); err != nil {
			return outcome{}, err
		}
		return done("was told to shut down, and doesn't answer any more")
	}
	whole := v.op.Spec.Machines == nil
	if err != nil && whole && v.record.State != v1alpha1.StepActed && v.now.Sub(v.record.At.Time) >= unanswered {
		return passedOver("doesn't answer, so it can't be told, and may be off already")
	}
	if err != nil {
		return unreachable("doesn't answer: %s", err)
	}
	defer node.Close() //nolint:errcheck // what it was told was answered
	id, err := node.BootID(ctx)
	if err != nil {
		return waiting("its boot id can't be read: %s", err)
	}
	if v.record.BootID == "" {
		v.record.BootID = id // is written down before the machine is told
		return waiting("is about to be told to shut down")
	}
	if id != v.record.BootID {
		return done("was off, and is back")
	}
	switch stage, err := node.Stage(ctx); {
	case err != nil:
		return waiting("its stage can't be read: %s", err)
	case stage.Stage != v1alpha1.StageRunning && stage.Stage != v1alpha1.StageBooting:
		return waiting("is %s", stage.Stage)
	case v.record.State == v1alpha1.StepActed && v.now.Sub(v.record.At.Time) < shutdownPatience:
		return waiting("was told to shut down, and still runs")
	case v.cancelled() && !whole && v.lasted(v.record) < rebootPatience:
		return waiting("the operation is cancelled; whether the machine was told to shut down before isn't known yet")
	case v.cancelled() && !whole:
		return outcome{needless: true, message: "the operation was cancelled before the machine was shut down"}, nil
	case whole && v.now.Sub(v.record.At.Time) > overdue:
		return passedOver("is left running: it was to be shut down %s ago, and the cluster runs by now", v.now.Sub(v.record.At.Time).Truncate(time.Second))
	}
	if !whole {
		if why, err := v.ownGates(ctx); err != nil || why != "" {
			return outcome{message: why}, err
		}
	} else if v.now.Sub(v.record.At.Time) > silence {
		if back := v.backAgain(ctx); back != "" {
			return passedOver("is left running: %s was off and is back, so the cluster is being powered on again", back)
		}
	}
	target, ok := node.(shutdowner)
	if !ok {
		return outcome{}, errors.New("the connection to the machine can't shut it down")
	}
	if err := target.Shutdown(ctx); err != nil && !talos.IsLost(err) {
		return waiting("refused to shut down: %s", err)
	}
	return outcome{acted: true, message: "was told to shut down"}, nil
}

// backAgain names a control plane of the operation that was told before and is in another boot by now: somebody powers the
// cluster on, while one that wasn't told yet is about to be. Empty if none is known to be.
func (v *visit) backAgain(ctx context.Context) string {
	for i := range v.op.Status.Machines {
		record := &v.op.Status.Machines[i]
		if record.Name == v.m.Name || record.BootID == "" {
			continue
		}
		other, err := v.machines.Get(record.Name)
		if err == nil && other.Spec.Role == v1alpha1.RoleControlPlane && v.inAnotherBoot(ctx, other, record.BootID) {
			return record.Name
		}
	}
	return ""
}

func (v *visit) inAnotherBoot(ctx context.Context, m *v1alpha1.TalosMachine, boot string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout/8)
	defer cancel()
	node, err := v.reach(ctx, m)
	if err != nil {
		return false
	}
	defer node.Close() //nolint:errcheck // it was read from only
	id, err := node.BootID(ctx)
	return err == nil && id != boot
}

// notePoweredOff writes on the machine's object that it is off, and by which operation: whoever wonders why it doesn't answer
// looks there. The controller of machines takes it away when the machine answers again.
func (v *visit) notePoweredOff(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	machines := v.Client.IchorV1alpha1().TalosMachines()
	m, err := machines.Get(ctx, v.m.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read machine %s: %w", v.m.Name, err)
	}
	changed := m.UID == v.m.UID && meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionPoweredOff, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPoweredOff, ObservedGeneration: m.Generation,
		Message:            fmt.Sprintf("powered off by operation %s, which told it at %s", v.op.Name, v.record.At.UTC().Format(time.RFC3339)),
		LastTransitionTime: v.now,
	})
	if !changed {
		return nil
	}
	if _, err := machines.UpdateStatus(ctx, m, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write that machine %s is powered off: %w", v.m.Name, err)
	}
	return nil
}
