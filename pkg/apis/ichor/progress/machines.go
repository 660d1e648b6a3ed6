// SPDX-License-Identifier: Apache-2.0

package progress

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// TalosCluster is as it was asked to be while its Kubernetes API answers and its etcd has a quorum. Without a usable
// secrets bundle nothing is ever applied, so that one is somebody's to mend.
func TalosCluster(cluster *ichor.TalosCluster) Progress {
	status := &cluster.Status
	switch {
	case status.ObservedGeneration != cluster.Generation:
		return unobserved()
	case is(status.Conditions, v1alpha1.ConditionSecretsReady, metav1.ConditionFalse):
		return by(stalled, find(status.Conditions, v1alpha1.ConditionSecretsReady), v1alpha1.ReasonSecretsMissing)
	}
	for _, condition := range []string{v1alpha1.ConditionSecretsReady, v1alpha1.ConditionAvailable, v1alpha1.ConditionEtcdHealthy} {
		if !is(status.Conditions, condition, metav1.ConditionTrue) {
			return by(reconciling, find(status.Conditions, condition), "Not"+condition)
		}
	}
	return current()
}

// TalosMachine is as it was asked to be when it is Ready. One that waits for an approval is on its way; one that was
// rejected, of which it isn't sure who it is, or that presents another certificate than was approved, stands still until a
// person says otherwise.
func TalosMachine(machine *ichor.TalosMachine) Progress {
	status := &machine.Status
	switch {
	case machine.Spec.ApprovalState == ichor.ApprovalRejected:
		return by(stalled, find(status.Conditions, v1alpha1.ConditionReady), v1alpha1.ReasonRejected)
	case is(status.Conditions, v1alpha1.ConditionIdentityResolved, metav1.ConditionFalse):
		return by(stalled, find(status.Conditions, v1alpha1.ConditionIdentityResolved), v1alpha1.ReasonConfirmationRequired)
	case machine.Spec.ApprovalState != ichor.ApprovalApproved:
		return reconciling(v1alpha1.ReasonWaitingForApproval, "a person has to approve the machine first")
	case status.ObservedGeneration != machine.Generation:
		return unobserved()
	case status.Phase == ichor.PhaseFailed:
		return by(stalled, find(status.Conditions, v1alpha1.ConditionReady), string(ichor.PhaseFailed))
	case blockedDrain(machine):
		return by(stalled, find(status.Conditions, v1alpha1.ConditionDrained), v1alpha1.ReasonDrainBlocked)
	case is(status.Conditions, v1alpha1.ConditionFingerprintTrusted, metav1.ConditionFalse):
		return by(stalled, find(status.Conditions, v1alpha1.ConditionFingerprintTrusted), v1alpha1.ReasonFingerprintChanged)
	case !is(status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue):
		return by(reconciling, find(status.Conditions, v1alpha1.ConditionReady), "NotReady")
	}
	return current()
}

// blockedDrain tells whether a machine is being removed and its Node's pods have had their time to go.
func blockedDrain(machine *ichor.TalosMachine) bool {
	drained := find(machine.Status.Conditions, v1alpha1.ConditionDrained)
	return machine.DeletionTimestamp != nil && drained != nil && drained.Status == metav1.ConditionFalse && drained.Reason == v1alpha1.ReasonDrainBlocked
}

// TalosConfigPatch is as it was asked to be when it is Ready: on all machines that are meant. A machine that refuses it
// keeps its last good configuration until the patch is changed.
func TalosConfigPatch(patch *ichor.TalosConfigPatch) Progress {
	status := &patch.Status
	ready := find(status.Conditions, v1alpha1.ConditionReady)
	switch {
	case status.ObservedGeneration != patch.Generation:
		return unobserved()
	case patch.Spec.Disabled:
		return current()
	case status.Machines.Refused > 0 || len(status.Refusals) > 0:
		return by(stalled, ready, "Refused")
	case ready == nil || ready.Status != metav1.ConditionTrue:
		return by(reconciling, ready, "NotReady")
	}
	return current()
}

// MachineReclaim goes through its phases to one that is final.
func MachineReclaim(reclaim *ichor.MachineReclaim) Progress {
	status := &reclaim.Status
	switch status.Phase {
	case ichor.ReclaimSucceeded:
		return current()
	case ichor.ReclaimRefused, ichor.ReclaimFailed:
		return stalled(string(status.Phase), status.Message)
	case "":
		return unobserved()
	}
	return reconciling(string(status.Phase), status.Message)
}
