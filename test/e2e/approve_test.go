// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

// decided is a machine's object with an approval as a person would decide it: the first fixed disk, DHCP.
func (s *suite) decided(t *testing.T, m *v1alpha1.TalosMachine, role v1alpha1.MachineRole, hostname string) *v1alpha1.TalosMachine {
	t.Helper()
	d := m.DeepCopy()
	d.Spec.ApprovalState = v1alpha1.ApprovalApproved
	d.Spec.Approval = &v1alpha1.MachineApproval{MaintenanceFingerprint: m.Status.MaintenanceFingerprint, Reason: "end-to-end test"}
	d.Spec.Role, d.Spec.Hostname = role, hostname
	d.Spec.Disks = []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: s.systemSerial(t, m)}, Role: v1alpha1.DiskSystem}}
	return d
}

// systemSerial is the serial number of the disk that the stories install on: every generated machine has an NVMe disk.
func (s *suite) systemSerial(t *testing.T, m *v1alpha1.TalosMachine) string {
	t.Helper()
	if m.Status.Inventory == nil {
		t.Fatalf("machine %s has no inventory", m.Name)
	}
	for _, disk := range m.Status.Inventory.Disks {
		if disk.Transport == "nvme" && disk.Serial != "" {
			return disk.Serial
		}
	}
	t.Fatalf("machine %s has no NVMe disk: %+v", m.Name, m.Status.Inventory.Disks)
	return ""
}

// approve writes an approval with the machine's object as it is now; whoever loses a race against the controller's
// status looks again, as a client must.
func (s *suite) approve(t *testing.T, as *versioned.Clientset, name string, role v1alpha1.MachineRole, hostname string) {
	t.Helper()
	if err := s.tryApprove(t, as, name, role, hostname); err != nil {
		t.Fatalf("approve %s as %s %s: %v", name, role, hostname, err)
	}
}

// tryApprove approves by a patch, which binds to the fingerprint that was shown instead of to a resourceVersion.
func (s *suite) tryApprove(t *testing.T, as *versioned.Clientset, name string, role v1alpha1.MachineRole, hostname string) error {
	t.Helper()
	return patchApproval(t.Context(), as, s.decided(t, s.get(t, name), role, hostname))
}

// patchApproval sends what was decided as a JSON merge patch.
func patchApproval(ctx context.Context, as *versioned.Clientset, decided *v1alpha1.TalosMachine, options ...string) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"approvalState": decided.Spec.ApprovalState,
		"approval":      map[string]any{"maintenanceFingerprint": decided.Spec.Approval.MaintenanceFingerprint, "reason": decided.Spec.Approval.Reason},
		"role":          decided.Spec.Role,
		"hostname":      decided.Spec.Hostname,
		"disks":         decided.Spec.Disks,
	}})
	if err != nil {
		return err
	}
	_, err = as.IchorV1alpha1().TalosMachines().Patch(ctx, decided.Name, types.MergePatchType, patch, metav1.PatchOptions{DryRun: options}, "approval")
	return err
}

// hold keeps the controller from sending anything to a machine.
func (s *suite) hold(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		s.annotate(t, s.operator, name, v1alpha1.HoldApplyAnnotation, "end-to-end test")
	}
}

// annotate sets an annotation; an empty value removes it.
func (s *suite) annotate(t *testing.T, as *versioned.Clientset, name, key, value string) {
	t.Helper()
	if err := tryAnnotate(t.Context(), as, name, key, value); err != nil {
		t.Fatal(err)
	}
}

func tryAnnotate(ctx context.Context, as *versioned.Clientset, name, key, value string) error {
	var set any
	if value != "" {
		set = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: set}}})
	if err != nil {
		return err
	}
	if _, err := as.IchorV1alpha1().TalosMachines().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("annotate machine %s with %s: %w", name, key, err)
	}
	return nil
}

// names of machines.
func names(all []*v1alpha1.TalosMachine) []string {
	var out []string
	for _, m := range all {
		out = append(out, m.Name)
	}
	return out
}
