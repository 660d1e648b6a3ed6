// SPDX-License-Identifier: Apache-2.0

package overview

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Advice is what a person can do: in words, and as a command to type; both may be empty.
type Advice struct {
	Words, Command string
}

// needsPerson are the reasons that only a person can clear.
var needsPerson = map[string]bool{
	v1alpha1.ReasonUnusableUUID: true, v1alpha1.ReasonUUIDHeldByOther: true, v1alpha1.ReasonSerialHeldByOther: true,
	v1alpha1.ReasonFingerprintChanged: true, v1alpha1.ReasonHeld: true, v1alpha1.ReasonSecretsMissing: true,
	v1alpha1.ReasonSecretsInvalid: true, v1alpha1.ReasonClusterMissing: true, v1alpha1.ReasonClusterReplaced: true,
	v1alpha1.ReasonRenderFailed: true, v1alpha1.ReasonRefusedByMachine: true, v1alpha1.ReasonOtherMachine: true,
	v1alpha1.ReasonWrongDisk: true, v1alpha1.ReasonDiskMissing: true, v1alpha1.ReasonConfirmationRequired: true,
	v1alpha1.ReasonConflict: true,
}

// Next advises about one machine. Program is how the CLI was called.
func Next(machine *v1alpha1.TalosMachine, program string) Advice {
	waiting, waits := WaitsFor(machine)
	switch {
	case machine.DeletionTimestamp != nil:
		return unstick(machine, program)
	case waits && waiting.Condition == v1alpha1.ConditionIdentityResolved:
		return Advice{
			Words:   "say whether it is a machine of its own (--distinct) or one that is known (--same-as)",
			Command: fmt.Sprintf("%s machine resolve %s", program, machine.Name),
		}
	case machine.Spec.ApprovalState == v1alpha1.ApprovalRejected:
		return Advice{
			Words:   "rejected, left alone; once its object is deleted it is found again as pending",
			Command: "kubectl delete talosmachine " + machine.Name,
		}
	case machine.Spec.ApprovalState != v1alpha1.ApprovalApproved:
		return Advice{Words: "compare the fingerprint with the machine's console, then approve it", Command: fmt.Sprintf("%s machine approve %s", program, machine.Name)}
	case waits:
		return unblock(machine, waiting, program)
	case !IsReady(machine):
		return Advice{Command: fmt.Sprintf("%s machine show %s --wait", program, machine.Name)}
	default:
		return Advice{}
	}
}

// stuck is why a removal doesn't go on by itself; nil if it does.
func stuck(machine *v1alpha1.TalosMachine) *metav1.Condition {
	ready := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionReady)
	stands := []string{v1alpha1.ReasonDrainBlocked, v1alpha1.ReasonUnreachable, v1alpha1.ReasonWrongDisk}
	if ready == nil || ready.Status == metav1.ConditionTrue || !slices.Contains(stands, ready.Reason) {
		return nil
	}
	return ready
}

// unstick advises about a machine that is being removed.
func unstick(machine *v1alpha1.TalosMachine, program string) Advice {
	remove := fmt.Sprintf("%s machine remove %s", program, machine.Name)
	switch why := stuck(machine); {
	case why == nil:
		return Advice{Words: "is being removed"}
	case why.Reason == v1alpha1.ReasonDrainBlocked:
		return Advice{Words: "mend what holds the pods, or go on without waiting for them", Command: remove + " --skip-drain"}
	case why.Reason == v1alpha1.ReasonUnreachable:
		return Advice{Words: "bring it up, or give it up if it is lost", Command: remove + " --force"}
	default:
		return Advice{Command: fmt.Sprintf("%s machine show %s", program, machine.Name)}
	}
}

// unblock advises about an approved machine that is held up.
func unblock(machine *v1alpha1.TalosMachine, waiting Waiting, program string) Advice {
	switch waiting.Reason {
	case v1alpha1.ReasonFingerprintChanged:
		return Advice{
			Words: "if the machine's console shows this fingerprint, say that it is trusted",
			Command: fmt.Sprintf("kubectl annotate --overwrite talosmachine %s %s=%s", machine.Name,
				v1alpha1.TrustMaintenanceFingerprintAnnotation, machine.Status.MaintenanceFingerprint),
		}
	case v1alpha1.ReasonHeld:
		return Advice{Words: "take the hold away", Command: fmt.Sprintf("kubectl annotate talosmachine %s %s-", machine.Name, v1alpha1.HoldApplyAnnotation)}
	case v1alpha1.ReasonSecretsMissing, v1alpha1.ReasonSecretsInvalid, v1alpha1.ReasonClusterMissing, v1alpha1.ReasonClusterReplaced:
		return Advice{Words: "see to its cluster first", Command: fmt.Sprintf("%s cluster show %s", program, machine.Spec.ClusterRef.Name)}
	case v1alpha1.ReasonRebootRequired:
		return Advice{Words: "let it reboot in order, drained, with its new configuration", Command: fmt.Sprintf("%s machine config rollout %s", program, machine.Name)}
	case v1alpha1.ReasonUnreachable:
		return Advice{Words: "look whether it has power and network"}
	case v1alpha1.ReasonPoweredOff:
		return Advice{Words: "power it on when it is wanted again"}
	}
	if needsPerson[waiting.Reason] {
		return Advice{Command: fmt.Sprintf("%s machine show %s", program, machine.Name)}
	}
	return Advice{Command: fmt.Sprintf("%s machine show %s --wait", program, machine.Name)}
}
