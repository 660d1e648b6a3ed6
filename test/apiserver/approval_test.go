// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/apiserver/harness"
)

func TestApproveRecordsWhoAndWhen(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 1), testContext(t)
	name := w.machines[0].Name
	got, err := w.approver.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, name, approve(w.machines[0], v1alpha1.RoleControlPlane), metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("approve: %v", err)
	}
	approval := got.Spec.Approval
	if approval.By != harness.Approver || approval.At.IsZero() || approval.ClusterUID == "" || approval.MaintenanceFingerprint != fingerprintOf(0, 0) {
		t.Errorf("record of the approval: %+v", approval)
	}
	cluster, err := w.admin.IchorV1alpha1().TalosClusters().Get(ctx, "prod", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get cluster: %v", err)
	}
	if slots := cluster.Status.ControlPlaneSlots; len(slots) != 1 || slots[0].Name != name || slots[0].MachineUID != got.UID {
		t.Errorf("slots: %+v", slots)
	}
	if counts := cluster.Status.ControlPlanes; counts.Approved != 1 || counts.Limit != 2 {
		t.Errorf("counts: %+v", counts)
	}
}
