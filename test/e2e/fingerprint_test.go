// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/localstack"
)

// applyMethod is the Talos call that carries a configuration.
const applyMethod = "/machine.MachineService/ApplyConfiguration"

// fingerprintBeforeApproval approves with the fingerprint that was shown, when a scan has already seen another one.
func fingerprintBeforeApproval(t *testing.T, s *suite) {
	m := s.take(t, 1)[0]
	shown := s.decided(t, s.get(t, m.Name), v1alpha1.RoleWorker, "moved-on")
	before := m.Status.MaintenanceFingerprint
	after := s.newCertificate(t, m)
	eventually(t, time.Minute, func() error {
		if seen := s.get(t, m.Name).Status.MaintenanceFingerprint; seen != after {
			return fmt.Errorf("the object has the fingerprint %s, the machine %s", seen, after)
		}
		return nil
	})
	err := patchApproval(t.Context(), s.operator, shown)
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), before) || !strings.Contains(err.Error(), after) {
		t.Errorf("answer %v, want 409 that names %s and %s", err, before, after)
	}
	s.expectPending(t, m.Name)
	if history := s.get(t, m.Name).Status.FingerprintHistory; len(history) < 2 || history[0].Fingerprint != after || history[1].Fingerprint != before {
		t.Errorf("history %+v, want %s before %s", history, after, before)
	}
}

// fingerprintBeforeApply changes the machine's certificate after it was approved and before it was configured.
func fingerprintBeforeApply(t *testing.T, s *suite) {
	m := s.take(t, 1)[0]
	s.hold(t, m.Name)
	pinned := s.get(t, m.Name).Status.MaintenanceFingerprint
	s.approve(t, s.operator, m.Name, v1alpha1.RoleWorker, "worker-vouched")
	presented := s.newCertificate(t, m)
	s.annotate(t, s.operator, m.Name, v1alpha1.HoldApplyAnnotation, "")

	eventually(t, time.Minute, func() error {
		c := condition(s.get(t, m.Name).Status.Conditions, v1alpha1.ConditionFingerprintTrusted)
		if c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, pinned) || !strings.Contains(c.Message, presented) {
			return fmt.Errorf("condition %+v, want it False with %s and %s", c, pinned, presented)
		}
		return nil
	})
	// Two more scans give the controller every occasion to do it wrong.
	s.scan(t)
	s.scan(t)
	console := s.console(t, m)
	if console.Applies != 0 || console.Calls[applyMethod].Count != 0 || console.Calls[applyMethod].RequestBytes != 0 {
		t.Errorf("the machine saw %d configurations and calls %+v, want not one byte", console.Applies, console.Calls[applyMethod])
	}

	key := v1alpha1.TrustMaintenanceFingerprintAnnotation
	if err := tryAnnotate(t.Context(), s.viewer, m.Name, key, presented); !apierrors.IsForbidden(err) {
		t.Errorf("the viewer vouches: %v, want 403", err)
	}
	s.annotate(t, s.operator, m.Name, key, presented)
	s.waitReady(t, 2*time.Minute, m.Name)
	s.expectOneApply(t, m)
}

// scan has the networks scanned at once and waits until that is done.
func (s *suite) scan(t *testing.T) {
	t.Helper()
	s.must(t, s.stack.Dir().KubeconfigOf("operator"), "ichor", "cluster", "discovery", "scan", localstack.ClusterName, "--wait", "--timeout", bound(time.Minute).String())
}
