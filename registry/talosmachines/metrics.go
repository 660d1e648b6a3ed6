// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/registry/slots"
)

// decisions counts writes to talosmachines/approval. Machines and people aren't labels: the audit log names them.
var decisions = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace: "ichor", Name: "approval_decisions_total", StabilityLevel: metrics.ALPHA,
	Help: "Writes to talosmachines/approval, by result: what the machine then is (approved, rejected, pending), or why it was refused (forbidden, limit, hostname, invalid, conflict, error).",
}, []string{"result", "role"})

func init() { legacyregistry.MustRegister(decisions) }

// countDecision counts one request. A dry run decides nothing.
func countDecision(obj runtime.Object, err error, dryRun bool) {
	if dryRun {
		return
	}
	if err != nil {
		decisions.WithLabelValues(refusalOf(err), "").Inc()
		return
	}
	if machine, ok := obj.(*ichor.TalosMachine); ok {
		decisions.WithLabelValues(string(machine.Spec.ApprovalState), string(machine.Spec.Role)).Inc()
	}
}

func refusalOf(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			switch cause.Type {
			case slots.CauseCapacity:
				return "limit"
			case slots.CauseHostnameTaken:
				return "hostname"
			}
		}
	}
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonForbidden:
		return "forbidden"
	case metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest:
		return "invalid"
	case metav1.StatusReasonConflict, metav1.StatusReasonNotFound:
		return "conflict"
	}
	return "error"
}
