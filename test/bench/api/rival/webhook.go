// SPDX-License-Identifier: Apache-2.0

package rival

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// maxReview bounds a request: an old and a new object of at most what etcd takes.
const maxReview = 4 << 20

// Admit decides about a machine that would become approved; an error is the refusal.
type Admit func(ctx context.Context, machine *v1alpha1.TalosMachine, dryRun bool) error

// Handler answers admission reviews.
func Handler(admit Admit) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(io.LimitReader(req.Body, maxReview))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var review admissionv1.AdmissionReview
		if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
			http.Error(w, fmt.Sprintf("no admission review: %v", err), http.StatusBadRequest)
			return
		}
		response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if err := judge(req.Context(), review.Request, admit); err != nil {
			response.Allowed = false
			response.Result = &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: err.Error()}
		}
		review.Request, review.Response = nil, response
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&review) // whoever asked went away
	})
}

// judge looks at the decision itself first, and asks the gate last.
func judge(ctx context.Context, request *admissionv1.AdmissionRequest, admit Admit) error {
	var machine v1alpha1.TalosMachine
	if err := json.Unmarshal(request.Object.Raw, &machine); err != nil {
		return fmt.Errorf("read machine %s: %w", request.Name, err)
	}
	if request.Operation == admissionv1.Create {
		return fmt.Errorf("machine %s: a machine isn't created as approved", request.Name)
	}
	if machine.Spec.Approval == nil || machine.Spec.Approval.MaintenanceFingerprint != machine.Status.MaintenanceFingerprint {
		return fmt.Errorf("machine %s: the approver was shown another fingerprint than the machine presents", request.Name)
	}
	if err := oneSystemDisk(&machine); err != nil {
		return err
	}
	return admit(ctx, &machine, request.DryRun != nil && *request.DryRun)
}

// oneSystemDisk holds the disks that were chosen to those that were seen.
func oneSystemDisk(machine *v1alpha1.TalosMachine) error {
	system := 0
	for _, disk := range machine.Spec.Disks {
		if disk.Role == v1alpha1.DiskSystem {
			system++
		}
		matches := 0
		if machine.Status.Inventory != nil {
			for _, seen := range machine.Status.Inventory.Disks {
				if (disk.Match.Serial == "" || disk.Match.Serial == seen.Serial) && (disk.Match.WWID == "" || disk.Match.WWID == seen.WWID) {
					matches++
				}
			}
		}
		if matches != 1 {
			return fmt.Errorf("machine %s: %d disks match %+v", machine.Name, matches, disk.Match)
		}
	}
	if system != 1 {
		return fmt.Errorf("machine %s: %d disks have the role system, must be one", machine.Name, system)
	}
	return nil
}
