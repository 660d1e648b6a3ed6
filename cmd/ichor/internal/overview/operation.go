// SPDX-License-Identifier: Apache-2.0

package overview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// OperationType is the name of the member of the union that an operation has.
func OperationType(spec *v1alpha1.TalosOperationSpec) string {
	for _, member := range []struct {
		name string
		set  bool
	}{
		{"talosUpgrade", spec.TalosUpgrade != nil}, {"kubernetesUpgrade", spec.KubernetesUpgrade != nil},
		{"ciliumUpgrade", spec.CiliumUpgrade != nil}, {"ichorUpgrade", spec.IchorUpgrade != nil},
		{"configRollout", spec.ConfigRollout != nil}, {"reboot", spec.Reboot != nil}, {"shutdown", spec.Shutdown != nil},
		{"etcdRestore", spec.EtcdRestore != nil}, {"rotateCA", spec.RotateCA != nil}, {"rotateKey", spec.RotateKey != nil},
	} {
		if member.set {
			return member.name
		}
	}
	return ""
}

// OperationPhase is where an operation is; one that nobody has looked at is Pending.
func OperationPhase(operation *v1alpha1.TalosOperation) v1alpha1.OperationPhase {
	if operation.Status.Phase == "" {
		return v1alpha1.OperationPending
	}
	return operation.Status.Phase
}

// OperationOver is true for an operation that has ended, whichever way.
func OperationOver(operation *v1alpha1.TalosOperation) bool {
	switch operation.Status.Phase {
	case v1alpha1.OperationSucceeded, v1alpha1.OperationFailed, v1alpha1.OperationCancelled:
		return true
	default:
		return false
	}
}

// OperationPaused is true for an operation that stands still until a person does something. One that a person has just
// resumed or cancelled isn't: the controller hasn't looked since.
func OperationPaused(operation *v1alpha1.TalosOperation) bool {
	return operation.Status.Phase == v1alpha1.OperationPaused && operation.Status.ObservedGeneration >= operation.Generation
}

// FailedStep is the machine at which an operation is stuck; nil if a step hasn't failed.
func FailedStep(operation *v1alpha1.TalosOperation) *v1alpha1.OperationMachineStatus {
	for i := range operation.Status.Machines {
		if machine := &operation.Status.Machines[i]; machine.State == v1alpha1.StepFailed && !machine.Done {
			return machine
		}
	}
	return nil
}

// FailedChecks is true for an operation that its plan's checks kept from beginning.
func FailedChecks(operation *v1alpha1.TalosOperation) bool {
	if plan := operation.Status.Plan; plan != nil && operation.Status.StartedAt == nil {
		for _, check := range plan.Checks {
			if check.Result == v1alpha1.CheckFailed {
				return true
			}
		}
	}
	return false
}

// NextOperation advises about an operation: the likely commands, the first of them first. Program is how the CLI was called.
func NextOperation(operation *v1alpha1.TalosOperation, program string) []Advice {
	command := func(verb string) string { return fmt.Sprintf("%s operation %s %s", program, verb, operation.Name) }
	watch := Advice{Words: "watch it", Command: command("watch")}
	cancelled := operation.Spec.Control != nil && operation.Spec.Control.CancelRequested
	cancel := Advice{Words: "end it, and put back what it put aside", Command: command("cancel")}
	switch {
	case operation.Status.Phase == v1alpha1.OperationFailed:
		return []Advice{{Words: "mend what the message says, then make another; this one stays as history"}}
	case OperationOver(operation):
		return nil
	case OperationPaused(operation) && FailedStep(operation) != nil:
		again := Advice{Words: "mend what the message says, then let it try the step again", Command: command("resume")}
		if cancelled {
			return []Advice{again}
		}
		return []Advice{again, cancel}
	case OperationPaused(operation) && operation.Spec.Suspend:
		return []Advice{{Words: "let it go on", Command: command("resume")}, cancel}
	case OperationPaused(operation):
		return []Advice{cancel}
	case cancelled:
		return []Advice{watch}
	default:
		return []Advice{watch, {Words: "finish the machine that was begun, and begin no other", Command: command("suspend")}, cancel}
	}
}

func (o *Overview) addOperation(operation *v1alpha1.TalosOperation, machines []v1alpha1.TalosMachine, program string) {
	if OperationOver(operation) || operation.Spec.Mode == v1alpha1.OperationModePlan {
		return
	}
	phase := OperationPhase(operation)
	item := Item{Subject: operation.Name, What: fmt.Sprintf("%s of %s, %s", OperationType(&operation.Spec), operation.Spec.ClusterRef.Name, phase), Since: operationSince(operation)}
	if total := operation.Status.Total; total > 0 {
		item.What += fmt.Sprintf(" (%d of %d machines done)", operation.Status.Done, total)
	}
	if operation.Status.Message != "" {
		item.What += ": " + operation.Status.Message
	}
	for i := range machines {
		// The engine's messages name the machine that is worked on by its object.
		if machine := &machines[i]; machine.Name == operation.Status.Current {
			item.What = strings.ReplaceAll(item.What, machine.Name, title(machine))
		}
	}
	if next := NextOperation(operation, program); len(next) > 0 {
		item.Advice = next[0]
	}
	if OperationPaused(operation) {
		item.Advice = Advice{Words: "see what became of each machine, and what to do", Command: fmt.Sprintf("%s operation show %s", program, operation.Name)}
		o.NeedsYou = append(o.NeedsYou, item)
		return
	}
	o.InProgress = append(o.InProgress, item)
}

// operationSince is when an operation stopped, where it is stuck; else when it began or was made.
func operationSince(operation *v1alpha1.TalosOperation) time.Time {
	if stuck := FailedStep(operation); stuck != nil && stuck.At != nil {
		return stuck.At.Time
	}
	if operation.Status.StartedAt != nil {
		return operation.Status.StartedAt.Time
	}
	return operation.CreationTimestamp.Time
}

// rolling is true while a roll-out of configurations is under way in a cluster, or waits for its turn.
func rolling(cluster *v1alpha1.TalosCluster, operations []v1alpha1.TalosOperation) bool {
	return slices.ContainsFunc(operations, func(operation v1alpha1.TalosOperation) bool {
		return operation.Spec.ClusterRef.Name == cluster.Name && operation.Spec.ConfigRollout != nil &&
			operation.Spec.Mode != v1alpha1.OperationModePlan && !OperationOver(&operation)
	})
}
