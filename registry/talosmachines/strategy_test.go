// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
)

func macOf(n int) string { return []string{"02:00:5e:00:53:01", "02:00:5e:00:53:02"}[n] }

func identityOf(n int) ichor.MachineIdentity {
	return ichor.MachineIdentity{
		UUID:         []string{"4c4c4544-0051-3610-8052-b4c04f4c3132", "4c4c4544-0051-3610-8052-b4c04f4c3133"}[n],
		SerialNumber: []string{"A", "B"}[n], MACAddresses: []string{macOf(n)},
	}
}

func pending() *ichor.TalosMachine {
	m := &ichor.TalosMachine{}
	m.Name, m.UID, m.Generation, m.ResourceVersion = identityOf(0).UUID, "uid", 1, "7"
	m.Finalizers = []string{v1alpha1.MachineFinalizer}
	m.Spec = ichor.TalosMachineSpec{
		ClusterRef: ichor.ClusterReference{Name: "prod"}, Identity: identityOf(0), Origin: ichor.MachineDiscovered,
		ApprovalState: ichor.ApprovalPending, DeletionPolicy: ichor.DeletionReset,
	}
	return m
}

func TestANewMachineIsPendingWhateverIsSent(t *testing.T) {
	t.Parallel()
	m := pending()
	m.Spec.Identity.UUID = "4C4C4544-0051-3610-8052-B4C04F4C3132"
	m.Spec.Identity.MACAddresses = []string{"02-00-5E-00-53-01"}
	m.Spec.ApprovalState = ichor.ApprovalApproved
	m.Spec.Approval = &ichor.MachineApproval{By: "mallory"}
	m.Spec.IdentityResolution = &ichor.IdentityResolution{Decision: ichor.IdentityDistinct}
	m.Spec.Role, m.Spec.Hostname = ichor.RoleControlPlane, "cp-1"
	m.Spec.Disks = []ichor.MachineDisk{{Role: ichor.DiskSystem}}
	m.Spec.NodeLabels, m.Spec.Network = map[string]string{"a": "b"}, &ichor.MachineNetwork{}
	m.Status.MaintenanceFingerprint = "forged"
	m.Finalizers, m.Generation = []string{"example.com/mine", "ichor.maesh.dev/other"}, 9
	newStrategy(nil).PrepareForCreate(context.Background(), m)
	want := pending()
	want.Finalizers = []string{v1alpha1.MachineFinalizer, "example.com/mine"}
	want.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWaitingForApproval, ObservedGeneration: 1,
		Message: "a person has to approve the machine first",
	}}
	if diff := cmp.Diff(want, m, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")); diff != "" {
		t.Errorf("new machine (-want +got):\n%s", diff)
	}
}

func TestIchorsFinalizerStaysThroughTheMainResource(t *testing.T) {
	t.Parallel()
	old := pending()
	old.Finalizers = []string{v1alpha1.MachineFinalizer, "foregroundDeletion"}
	for name, tc := range map[string]struct{ sent, want []string }{
		"none sent":              {nil, []string{v1alpha1.MachineFinalizer}},
		"another of Ichor's":     {[]string{v1alpha1.MachineFinalizer, "ichor.maesh.dev/x"}, []string{v1alpha1.MachineFinalizer}},
		"another party's is his": {[]string{"example.com/y", "foregroundDeletion"}, []string{v1alpha1.MachineFinalizer, "foregroundDeletion", "example.com/y"}},
	} {
		m := old.DeepCopy()
		m.Finalizers = tc.sent
		newStrategy(nil).PrepareForUpdate(context.Background(), m, old)
		if diff := cmp.Diff(tc.want, m.Finalizers); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestTheGenerationMovesWithTheSpecOnly(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, tc := range map[string]struct {
		strategy interface {
			PrepareForUpdate(context.Context, runtime.Object, runtime.Object)
		}
		change func(*ichor.TalosMachine)
		want   int64
	}{
		"main: locked":     {newStrategy(nil), func(m *ichor.TalosMachine) { m.Spec.Locked = true }, 2},
		"main: a label":    {newStrategy(nil), func(m *ichor.TalosMachine) { m.Labels = map[string]string{"a": "b"} }, 1},
		"main: a decision": {newStrategy(nil), func(m *ichor.TalosMachine) { m.Spec.Role = ichor.RoleWorker }, 1},
		"status":           {statusStrategy{newStrategy(nil)}, func(m *ichor.TalosMachine) { m.Status.Stage = ichor.StageRunning }, 1},
		"approval":         {approvalStrategy{newStrategy(nil)}, func(m *ichor.TalosMachine) { m.Spec.ApprovalState = ichor.ApprovalRejected }, 2},
		"identity": {identityStrategy{newStrategy(nil)}, func(m *ichor.TalosMachine) {
			m.Spec.IdentityResolution = &ichor.IdentityResolution{Decision: ichor.IdentityDistinct}
		}, 2},
		"finalize": {finalizeStrategy{newStrategy(nil)}, func(m *ichor.TalosMachine) { m.Finalizers = nil }, 1},
	} {
		old := pending()
		m := old.DeepCopy()
		tc.change(m)
		tc.strategy.PrepareForUpdate(ctx, m, old)
		if m.Generation != tc.want {
			t.Errorf("%s: generation %d, want %d", name, m.Generation, tc.want)
		}
	}
}

func TestWhoApprovedIsTheServersToSay(t *testing.T) {
	t.Parallel()
	then := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	ctx := request.WithUser(context.Background(), &user.DefaultInfo{Name: "alice"})
	cluster := &ichor.TalosCluster{}
	cluster.UID = "cluster-uid"
	ctx = withFacts(ctx, validation.ApprovalFacts{Cluster: cluster})
	strategy := approvalStrategy{newStrategy(nil)}
	first := pending()
	first.Spec.ApprovalState, first.Spec.Role = ichor.ApprovalApproved, ichor.RoleWorker
	first.Spec.Approval = &ichor.MachineApproval{MaintenanceFingerprint: "f", By: "mallory", At: &then, ClusterUID: "forged", Reason: "rack 1"}
	strategy.PrepareForUpdate(ctx, first, pending())
	got := first.Spec.Approval
	if got.By != "alice" || got.ClusterUID != "cluster-uid" || got.At.Equal(&then) || got.Reason != "rack 1" || got.MaintenanceFingerprint != "f" {
		t.Fatalf("record: %+v", got)
	}

	bob := request.WithUser(ctx, &user.DefaultInfo{Name: "bob"})
	same := first.DeepCopy()
	same.Spec.Approval = &ichor.MachineApproval{Reason: "rack 1"}
	strategy.PrepareForUpdate(bob, same, first)
	if diff := cmp.Diff(first, same); diff != "" {
		t.Errorf("the same decision again changes the record (-was +is):\n%s", diff)
	}
	more := first.DeepCopy()
	more.Spec.NodeLabels = map[string]string{"rack": "1"}
	strategy.PrepareForUpdate(bob, more, first)
	if more.Spec.Approval.By != "bob" || more.Spec.Approval.MaintenanceFingerprint != "f" {
		t.Errorf("a changed decision: %+v, want bob's, with the pin kept", more.Spec.Approval)
	}
	rejected := pending()
	rejected.Spec.ApprovalState, rejected.Spec.Role = ichor.ApprovalRejected, ichor.RoleWorker
	strategy.PrepareForUpdate(bob, rejected, pending())
	if rejected.Spec.Approval.By != "bob" || rejected.Spec.Approval.ClusterUID != "" || rejected.Spec.Role != "" {
		t.Errorf("rejected: role %q, %+v; want bob's word and nothing decided", rejected.Spec.Role, rejected.Spec.Approval)
	}
}

func TestFieldsThatSelectorsSee(t *testing.T) {
	t.Parallel()
	m := pending()
	m.Status.Stage = ichor.StageMaintenance
	_, fields, err := GetAttrs(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, label := range v1alpha1.MachineFieldLabels {
		if !fields.Has(label) {
			t.Errorf("selector %s is served, and objects don't have it", label)
		}
	}
	if _, _, err := GetAttrs(&ichor.TalosCluster{}); err == nil {
		t.Error("attributes of another kind: no error")
	}
}
