// SPDX-License-Identifier: Apache-2.0

package progress

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// TalosOperation goes through its phases to one that is final. One that paused by itself, that failed or that was
// cancelled has not done what it was made for; one that is suspended goes on when it no longer is.
func TalosOperation(operation *ichor.TalosOperation) Progress {
	status := &operation.Status
	switch phase := status.Phase; phase {
	case ichor.OperationSucceeded:
		return current()
	case ichor.OperationFailed, ichor.OperationCancelled:
		return stalled(string(phase), status.Message)
	case ichor.OperationPaused:
		if operation.Spec.Suspend {
			return reconciling(v1alpha1.ReasonSuspended, status.Message)
		}
		return stalled(string(phase), status.Message)
	case "":
		return unobserved()
	default:
		return reconciling(string(phase), status.Message)
	}
}

// TalosEtcdBackup is as it was asked to be while the last backup that was due is verified, and while none is due at all.
func TalosEtcdBackup(backup *ichor.TalosEtcdBackup) Progress {
	status := &backup.Status
	ready, working := find(status.Conditions, v1alpha1.ConditionReady), find(status.Conditions, v1alpha1.ConditionProgressing)
	switch {
	case status.ObservedGeneration != backup.Generation:
		return unobserved()
	case working != nil && working.Status == metav1.ConditionTrue:
		return by(reconciling, working, v1alpha1.ConditionProgressing)
	case ready != nil && ready.Status == metav1.ConditionFalse:
		return by(stalled, ready, "NotReady")
	case ready != nil && ready.Status == metav1.ConditionTrue:
		return current()
	case backup.Spec.BackupRequest == status.BackupRequest && (backup.Spec.Suspend || backup.Spec.Schedule == ""):
		return current()
	}
	return by(reconciling, ready, "NotReady")
}

// TalosStorage is as it was asked to be when objects could be written, read back and deleted. Whether a bucket that can't
// be used is to be mended there or here, somebody has to.
func TalosStorage(storage *ichor.TalosStorage) Progress {
	ready := find(storage.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case storage.Status.ObservedGeneration != storage.Generation:
		return unobserved()
	case ready == nil || ready.Status == metav1.ConditionUnknown:
		return by(reconciling, ready, "NotReady")
	case ready.Status == metav1.ConditionFalse:
		return by(stalled, ready, "NotReady")
	}
	return current()
}

// TalosCredentialRequest is as it was asked to be when the certificate is issued.
func TalosCredentialRequest(request *ichor.TalosCredentialRequest) Progress {
	conditions := request.Status.Conditions
	issued := find(conditions, v1alpha1.ConditionIssued)
	switch {
	case is(conditions, v1alpha1.ConditionFailed, metav1.ConditionTrue):
		return by(stalled, find(conditions, v1alpha1.ConditionFailed), v1alpha1.ConditionFailed)
	case issued == nil:
		return unobserved()
	case issued.Status == metav1.ConditionTrue:
		return current()
	}
	return by(reconciling, issued, "NotIssued")
}

// IchorInstallation is as it was asked to be when all parts run and none is being replaced.
func IchorInstallation(installation *ichor.IchorInstallation) Progress {
	status := &installation.Status
	ready, working := find(status.Conditions, v1alpha1.ConditionReady), find(status.Conditions, v1alpha1.ConditionProgressing)
	switch {
	case status.ObservedGeneration != installation.Generation:
		return unobserved()
	case working != nil && working.Status == metav1.ConditionTrue:
		return by(reconciling, working, v1alpha1.ConditionProgressing)
	case ready != nil && ready.Status == metav1.ConditionTrue:
		return current()
	case ready != nil && ready.Status == metav1.ConditionFalse && working != nil:
		// Nothing is under way, and not all parts run.
		return by(stalled, ready, "NotReady")
	}
	return by(reconciling, ready, "NotReady")
}

// IchorUser is a user as soon as it is there; what may be on its way is a certificate.
func IchorUser(user *ichor.IchorUser) Progress {
	issued := find(user.Status.Conditions, v1alpha1.ConditionCertificateIssued)
	switch {
	case user.Spec.CertificateRequest == nil:
		return current()
	case issued == nil || issued.ObservedGeneration != user.Generation:
		return unobserved()
	case issued.Status == metav1.ConditionFalse:
		return by(stalled, issued, "NotIssued")
	case issued.Status != metav1.ConditionTrue:
		return by(reconciling, issued, "NotIssued")
	}
	return current()
}
