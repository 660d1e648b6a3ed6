// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// trusted tells why a machine's maintenance certificate is good for its first configuration: it is the one that the
// approver was shown, the one that a configuration was meant for before, or the one that a person's annotation names.
func trusted(m *v1alpha1.TalosMachine, seen talos.Fingerprint) (reason string, ok bool) {
	switch {
	case seen == "":
		return "", false
	case m.Spec.Approval != nil && m.Spec.Approval.MaintenanceFingerprint == string(seen):
		return v1alpha1.ReasonPinned, true
	case m.Status.Provisioning != nil && m.Status.Provisioning.Fingerprint == string(seen):
		return v1alpha1.ReasonPinned, true
	case namedByAnnotation(m, seen):
		return v1alpha1.ReasonTrustedByAnnotation, true
	default:
		return "", false
	}
}

func namedByAnnotation(m *v1alpha1.TalosMachine, seen talos.Fingerprint) bool {
	return m.Annotations[v1alpha1.TrustMaintenanceFingerprintAnnotation] == string(seen)
}

// pinned is the fingerprint that the machine is expected to present.
func pinned(m *v1alpha1.TalosMachine) string {
	if m.Status.Provisioning != nil && m.Status.Provisioning.Fingerprint != "" {
		return m.Status.Provisioning.Fingerprint
	}
	if m.Spec.Approval != nil {
		return m.Spec.Approval.MaintenanceFingerprint
	}
	return ""
}

// fingerprintChanged tells a person what is wrong and what to do.
func fingerprintChanged(m *v1alpha1.TalosMachine, seen talos.Fingerprint) string {
	return fmt.Sprintf("the machine presents maintenance certificate %s, approved was %s; nothing was sent. Talos makes a new one at each boot: compare with the machine's console, and if it is right, annotate the machine with %s=%s",
		seen, pinned(m), v1alpha1.TrustMaintenanceFingerprintAnnotation, seen)
}
