// SPDX-License-Identifier: Apache-2.0

package overview

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Item is one line of a list for a person.
type Item struct {
	// Subject is the machine's or cluster's name, as people know it.
	Subject string
	// What is the case.
	What string
	// Since when; zero if it isn't known.
	Since time.Time
	Advice
}

// Overview sorts everything by whose turn it is; the longest-standing comes first.
type Overview struct {
	// NeedsYou waits for a person.
	NeedsYou []Item
	// InProgress goes on by itself.
	InProgress []Item
	// Wrong was well before, and isn't.
	Wrong []Item
}

// Look sorts clusters, operations and machines. Program is how the CLI was called.
func Look(clusters []v1alpha1.TalosCluster, operations []v1alpha1.TalosOperation, machines []v1alpha1.TalosMachine, program string) Overview {
	var overview Overview
	for i := range operations {
		overview.addOperation(&operations[i], machines, program)
	}
	for i := range clusters {
		overview.addCluster(&clusters[i], operations, program)
	}
	for i := range machines {
		overview.addMachine(&machines[i], program)
	}
	for _, items := range [][]Item{overview.NeedsYou, overview.InProgress, overview.Wrong} {
		slices.SortStableFunc(items, func(a, b Item) int { return a.Since.Compare(b.Since) })
	}
	return overview
}

// The conditions of a cluster that should be True: those that a person sees to, and those that tell of trouble; and those
// that a person sees to when they are.
var (
	personCluster  = []string{v1alpha1.ConditionSecretsReady}
	personWhenTrue = []string{v1alpha1.ConditionSurplusControlPlane, v1alpha1.ConditionConfigurationPending, v1alpha1.ConditionMachinesQuarantined}
	badCluster     = []string{v1alpha1.ConditionAvailable, v1alpha1.ConditionEtcdHealthy, v1alpha1.ConditionDiscovered}
)

func (o *Overview) addCluster(cluster *v1alpha1.TalosCluster, operations []v1alpha1.TalosOperation, program string) {
	add := func(items *[]Item, condition *metav1.Condition) {
		waiting := waitingFor(condition)
		advice := Advice{Command: program + " cluster show " + cluster.Name}
		if waiting.Reason == v1alpha1.ReasonRebootRequired {
			advice = Advice{Words: "reboot those machines, one at a time", Command: program + " machine config rollout --all --cluster " + cluster.Name}
		}
		*items = append(*items, Item{Subject: cluster.Name, What: waiting.What, Since: waiting.Since, Advice: advice})
	}
	for i := range cluster.Status.Conditions {
		condition := &cluster.Status.Conditions[i]
		no := condition.Status == metav1.ConditionFalse
		switch {
		case no && slices.Contains(personCluster, condition.Type):
			add(&o.NeedsYou, condition)
		case no && slices.Contains(badCluster, condition.Type):
			add(&o.Wrong, condition)
		case condition.Type == v1alpha1.ConditionConfigurationPending &&
			(condition.Reason == v1alpha1.ReasonHeld || condition.Reason == v1alpha1.ReasonRebootRequired && rolling(cluster, operations)):
			// The machines that are held, and the operation that reboots those, are in the lists by themselves.
		case slices.Contains(personWhenTrue, condition.Type) && condition.Status == metav1.ConditionTrue:
			add(&o.NeedsYou, condition)
		}
	}
}

func (o *Overview) addMachine(machine *v1alpha1.TalosMachine, program string) {
	waiting, waits := WaitsFor(machine)
	item := Item{Subject: title(machine), What: waiting.What, Since: waiting.Since, Advice: Next(machine, program)}
	switch {
	case machine.DeletionTimestamp != nil && stuck(machine) != nil:
		why := waitingFor(stuck(machine))
		item.What, item.Since = why.What, why.Since
		o.NeedsYou = append(o.NeedsYou, item)
	case machine.DeletionTimestamp != nil:
		item.What, item.Since = "being removed", machine.DeletionTimestamp.Time
		o.InProgress = append(o.InProgress, item)
	case machine.Spec.ApprovalState == v1alpha1.ApprovalRejected:
	case machine.Spec.ApprovalState != v1alpha1.ApprovalApproved:
		if !waits {
			item.What, item.Since = "waits for approval: "+describePending(machine), machine.CreationTimestamp.Time
			item.Words = "" // the approval itself says what to compare
		}
		o.NeedsYou = append(o.NeedsYou, item)
	case needsPerson[waiting.Reason]:
		o.NeedsYou = append(o.NeedsYou, item)
	case IsReady(machine):
	case machine.Status.Phase == v1alpha1.PhaseFailed, converged(machine):
		o.Wrong = append(o.Wrong, wrong(machine, item))
	default:
		if item.What == "" {
			item.What = "approved, not taken up yet"
		}
		if machine.Spec.Approval != nil && machine.Spec.Approval.At != nil {
			item.Since = machine.Spec.Approval.At.Time
		}
		item.What = string(phase(machine)) + ": " + item.What
		o.InProgress = append(o.InProgress, item)
	}
}

// wrong puts an unreachable machine's unreachability before what follows from it.
func wrong(machine *v1alpha1.TalosMachine, item Item) Item {
	if reachable := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionReachable); reachable != nil && reachable.Status == metav1.ConditionFalse {
		waiting := waitingFor(reachable)
		item.What, item.Since = waiting.What, waiting.Since
	}
	if item.What == "" {
		item.What = "not Ready"
	}
	return item
}

func converged(machine *v1alpha1.TalosMachine) bool {
	return machine.Status.Provisioning != nil && machine.Status.Provisioning.ConvergedAt != nil
}

func phase(machine *v1alpha1.TalosMachine) v1alpha1.MachinePhase {
	if machine.Status.Phase == "" || machine.Status.Phase == v1alpha1.PhasePending {
		return v1alpha1.PhaseApproved
	}
	return machine.Status.Phase
}

func title(machine *v1alpha1.TalosMachine) string {
	if machine.Spec.Hostname != "" {
		return machine.Spec.Hostname
	}
	return machine.Name
}

// describePending tells a machine apart for someone who stands before it.
func describePending(machine *v1alpha1.TalosMachine) string {
	var words []string
	if inventory := machine.Status.Inventory; inventory != nil {
		if model := strings.TrimSpace(inventory.Manufacturer + " " + inventory.ProductName); model != "" {
			words = append(words, model)
		}
	}
	if serial := machine.Spec.Identity.SerialNumber; serial != "" {
		words = append(words, "serial "+serial)
	}
	if len(machine.Status.Addresses) > 0 {
		words = append(words, machine.Status.Addresses[0])
	}
	if len(words) == 0 {
		return "nothing is known of it yet"
	}
	return strings.Join(words, ", ")
}
