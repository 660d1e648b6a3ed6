// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/apiserver/harness"
)

// causes are the causes of a refusal, as "type field: message".
func causes(err error) []string {
	var out []string
	if status, ok := err.(apierrors.APIStatus); ok && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			out = append(out, fmt.Sprintf("%s %s: %s", cause.Type, cause.Field, cause.Message))
		}
	}
	return out
}

func hasCause(err error, part string) bool {
	return slices.ContainsFunc(causes(err), func(cause string) bool { return strings.Contains(cause, part) })
}

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
	again, err := w.admin.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, name, got, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("approve again: %v", err)
	}
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("the same approval by somebody else changes something (-was +is):\n%s", diff)
	}
}

func TestTheImpersonatedUserApproves(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 1), testContext(t)
	config := w.Config(0, harness.Impersonator)
	config.Impersonate = rest.ImpersonationConfig{UserName: harness.Approver}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, w.machines[0].Name, approve(w.machines[0], v1alpha1.RoleWorker), metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("approve: %v", err)
	}
	if got.Spec.Approval.By != harness.Approver {
		t.Errorf("approved by %q, want the impersonated user", got.Spec.Approval.By)
	}
}

func TestWhoMayApprove(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 9, 6), testContext(t)
	for n, tc := range []struct {
		user string
		may  bool
	}{
		{harness.Root, true}, {harness.Admin, true}, {harness.Approver, true}, {harness.ApproverOfOne + machineUUID(3), true},
		{harness.ApproverOfOne + machineUUID(0), false}, {harness.Writer, false},
	} {
		_, err := w.Client(t, 0, tc.user).IchorV1alpha1().TalosMachines().UpdateApproval(ctx, machineUUID(n), approve(w.machines[n], v1alpha1.RoleControlPlane), metav1.UpdateOptions{})
		if tc.may && err != nil || !tc.may && !hasCause(err, `MissingVerb : user "`+tc.user+`" needs the verb "approve"`) {
			t.Errorf("%s approves machine %d: %v, may: %t", tc.user, n, err, tc.may)
		}
	}
}

func TestApprovalIsBoundToWhatWasShown(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 1), testContext(t)
	machines := w.approver.IchorV1alpha1().TalosMachines()
	seen := w.machines[0]
	patch := func(fingerprint string) error {
		body := fmt.Sprintf(`{"spec":{"approvalState":"approved","role":"worker","approval":{"maintenanceFingerprint":%q},"disks":[{"match":{"serial":"S1"},"role":"system"}]}}`, fingerprint)
		_, err := machines.Patch(ctx, seen.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, "approval")
		return err
	}
	changed := seen.DeepCopy()
	changed.Status.MaintenanceFingerprint = fingerprintOf(0, 1)
	if _, err := w.controller.IchorV1alpha1().TalosMachines().UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	stale := approve(seen, v1alpha1.RoleWorker)
	if _, err := machines.UpdateApproval(ctx, seen.Name, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("approval of a version that is gone: %v, want a 409", err)
	}
	if err := patch(fingerprintOf(0, 0)); !apierrors.IsConflict(err) || !hasCause(err, "FingerprintChanged spec.approval.maintenanceFingerprint") ||
		!strings.Contains(err.Error(), fingerprintOf(0, 0)) || !strings.Contains(err.Error(), fingerprintOf(0, 1)) {
		t.Errorf("approval of another certificate: %v, want a 409 that names both", err)
	}
	if err := patch(""); !apierrors.IsInvalid(err) || !hasCause(err, "FieldValueRequired spec.approval.maintenanceFingerprint") {
		t.Errorf("approval without a fingerprint: %v, want a 422", err)
	}
	unversioned := approve(seen, v1alpha1.RoleWorker)
	unversioned.ResourceVersion = ""
	if _, err := machines.UpdateApproval(ctx, seen.Name, unversioned, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !hasCause(err, "metadata.resourceVersion") {
		t.Errorf("update without a resourceVersion: %v, want a 422", err)
	}
	other := fmt.Sprintf(`{"spec":{"approvalState":"approved","role":"worker","identity":{"uuid":%q},"approval":{"maintenanceFingerprint":%q}}}`, machineUUID(7), fingerprintOf(0, 1))
	if _, err := machines.Patch(ctx, seen.Name, types.MergePatchType, []byte(other), metav1.PatchOptions{}, "approval"); !apierrors.IsConflict(err) || !hasCause(err, "IdentityChanged spec.identity") {
		t.Errorf("approval of another identity: %v, want a 409", err)
	}
	w.stillPending(t, 0)
	if err := patch(fingerprintOf(0, 1)); err != nil {
		t.Errorf("approval of what is there: %v", err)
	}
}

func TestApprovalWaitsForInspectionAndIdentity(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 1), testContext(t)
	machines := w.approver.IchorV1alpha1().TalosMachines()

	raw, err := w.controller.IchorV1alpha1().TalosMachines().Create(ctx, machine(1), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	body := approve(raw, v1alpha1.RoleWorker)
	body.Spec.Approval.MaintenanceFingerprint = fingerprintOf(1, 0)
	if _, err := machines.UpdateApproval(ctx, raw.Name, body, metav1.UpdateOptions{}); !apierrors.IsConflict(err) || !hasCause(err, "NotInspected") {
		t.Errorf("approval before inspection: %v, want a 409 NotInspected", err)
	}

	doubtful := w.machines[0].DeepCopy()
	doubtful.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionIdentityResolved, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSerialHeldByOther,
		Message: "machine X has the same serial number", LastTransitionTime: metav1.Now(),
	}}
	if doubtful, err = w.controller.IchorV1alpha1().TalosMachines().UpdateStatus(ctx, doubtful, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := machines.UpdateApproval(ctx, doubtful.Name, approve(doubtful, v1alpha1.RoleWorker), metav1.UpdateOptions{}); !apierrors.IsConflict(err) ||
		!hasCause(err, "IdentityUnresolved") || !strings.Contains(err.Error(), "machine X has the same serial number") {
		t.Errorf("approval of a doubtful identity: %v, want a 409 IdentityUnresolved", err)
	}
	resolved := doubtful.DeepCopy()
	resolved.Spec.IdentityResolution = &v1alpha1.IdentityResolution{Decision: v1alpha1.IdentityDistinct, By: "forged"}
	if _, err := w.writer.IchorV1alpha1().TalosMachines().UpdateIdentity(ctx, resolved.Name, resolved, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) || !hasCause(err, "MissingVerb") {
		t.Errorf("resolution without the verb: %v, want a 403", err)
	}
	if resolved, err = machines.UpdateIdentity(ctx, resolved.Name, resolved, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("resolve: %v", err)
	}
	if word := resolved.Spec.IdentityResolution; word.By != harness.Approver || word.At.IsZero() {
		t.Errorf("resolution: %+v", word)
	}
	if _, err := machines.UpdateApproval(ctx, resolved.Name, approve(resolved, v1alpha1.RoleWorker), metav1.UpdateOptions{}); err != nil {
		t.Errorf("approval after the resolution: %v", err)
	}
}

func TestBadApprovalsNameEveryFaultAndStoreNothing(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 1), testContext(t)
	body := approve(w.machines[0], "boss")
	body.Spec.ClusterRef.Name, body.Spec.Hostname = "nope", "Not_A_Name"
	body.Spec.Disks = []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "TWIN"}, Role: v1alpha1.DiskSystem}, {Match: v1alpha1.DiskMatch{Serial: "S3"}, Role: v1alpha1.DiskSystem}}
	body.Spec.Network = &v1alpha1.MachineNetwork{
		Interface: v1alpha1.InterfaceMatch{MAC: machineMAC(9)}, Addressing: v1alpha1.AddressingStatic, Addresses: []string{"10.0.0.11"}, VLAN: ptr.To[int32](5000),
	}
	_, err := w.approver.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, body.Name, body, metav1.UpdateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Fatalf("approve: %v, want a 422", err)
	}
	for _, want := range []string{
		"FieldValueNotFound spec.clusterRef.name", "FieldValueNotSupported spec.role", "FieldValueInvalid spec.hostname", "FieldValueInvalid spec.disks[0].match",
		"FieldValueInvalid spec.disks[1].role", "FieldValueInvalid spec.disks[1].match", "FieldValueInvalid spec.network.interface.mac",
		"FieldValueInvalid spec.network.addresses[0]", "FieldValueInvalid spec.network.vlan",
	} {
		if !hasCause(err, want) {
			t.Errorf("no cause %q in %q", want, causes(err))
		}
	}
	w.stillPending(t, 0)
}

func TestTheControlPlaneBeyondTheLimitIsRefused(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 4, 6), testContext(t)
	machines := w.approver.IchorV1alpha1().TalosMachines()
	var names []string
	for n := range 5 {
		body := approve(w.machines[n], v1alpha1.RoleControlPlane)
		body.Spec.Hostname = fmt.Sprintf("cp-%d", n)
		if _, err := machines.UpdateApproval(ctx, body.Name, body, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("control plane %d of a count of four: %v", n+1, err)
		}
		names = append(names, body.Name)
	}
	_, err := machines.UpdateApproval(ctx, machineUUID(5), approve(w.machines[5], v1alpha1.RoleControlPlane), metav1.UpdateOptions{})
	if !apierrors.IsForbidden(err) || !hasCause(err, "ControlPlaneCapacity spec.role") || !strings.Contains(err.Error(), "at most 5") {
		t.Errorf("sixth control plane of a count of four: %v, want a 403 with limit and holders", err)
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("refusal doesn't name holder %s: %v", name, err)
		}
	}
	w.slotsAre(t, names...)

	cluster, err := w.admin.IchorV1alpha1().TalosClusters().Get(ctx, "prod", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Spec.ControlPlane.Count = 3
	if _, err := w.admin.IchorV1alpha1().TalosClusters().Update(ctx, cluster, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !hasCause(err, "spec.controlPlane.count") {
		t.Errorf("count below the held slots: %v, want a 422", err)
	}
	if _, err := machines.UpdateApproval(ctx, machineUUID(5), approve(w.machines[5], v1alpha1.RoleWorker), metav1.UpdateOptions{}); err != nil {
		t.Errorf("the sixth as a worker: %v", err)
	}
}

func TestDryRunApprovesNothing(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 1), testContext(t)
	var warnings warningList
	config := w.Config(0, harness.Approver)
	config.WarningHandler = &warnings
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	body := approve(w.machines[0], v1alpha1.RoleControlPlane)
	body.Spec.Disks[0].Match.Serial = "S4"
	got, err := client.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, body.Name, body, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatalf("dry run: %v", err)
	}
	if got.Spec.ApprovalState != v1alpha1.ApprovalApproved || got.Spec.Approval.By != harness.Approver {
		t.Errorf("outcome shown: %+v", got.Spec)
	}
	if want := []string{"spec.disks[0]: /dev/sdc is attached by USB", "spec.disks[0]: /dev/sdc holds data (xfs), which will be lost"}; !slices.Equal(warnings.all(), want) {
		t.Errorf("warnings %q, want %q", warnings.all(), want)
	}
	w.stillPending(t, 0)
}

func TestRejectAndWhatFollows(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 2), testContext(t)
	machines := w.approver.IchorV1alpha1().TalosMachines()
	body := w.machines[0].DeepCopy()
	body.Spec.ApprovalState = v1alpha1.ApprovalRejected
	body.Spec.Approval = &v1alpha1.MachineApproval{Reason: "not ours"}
	rejected, err := machines.UpdateApproval(ctx, body.Name, body, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("reject: %v", err)
	}
	if a := rejected.Spec.Approval; a.By != harness.Approver || a.At.IsZero() || a.Reason != "not ours" {
		t.Errorf("record: %+v", a)
	}
	if _, err := machines.UpdateApproval(ctx, body.Name, approve(rejected, v1alpha1.RoleWorker), metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !hasCause(err, "spec.approvalState") {
		t.Errorf("approval of a rejected machine: %v, want a 422", err)
	}
	approved, err := machines.UpdateApproval(ctx, machineUUID(1), approve(w.machines[1], v1alpha1.RoleWorker), metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	back := approved.DeepCopy()
	back.Spec.ApprovalState = v1alpha1.ApprovalRejected
	if _, err := machines.UpdateApproval(ctx, back.Name, back, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("rejection of an approved machine: %v, want a 422", err)
	}
	// A holder of the verb may write again what isn't frozen; the pin stays.
	approved.Spec.NodeLabels = map[string]string{"rack": "1"}
	more, err := w.admin.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, approved.Name, approved, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("new label of an approved machine: %v", err)
	}
	if more.Spec.Approval.By != harness.Admin || more.Spec.Approval.MaintenanceFingerprint != fingerprintOf(1, 0) || more.Generation != approved.Generation+1 {
		t.Errorf("record: %+v, generation %d", more.Spec.Approval, more.Generation)
	}
}

func TestAnAdoptedMachineNeedsNoFingerprint(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 0), testContext(t)
	adopted := machine(0)
	adopted.Spec.Origin, adopted.Spec.Address = v1alpha1.MachineAdopted, "10.0.0.10"
	made, err := w.approver.IchorV1alpha1().TalosMachines().Create(ctx, adopted, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("enter: %v", err)
	}
	made.Spec.ApprovalState, made.Spec.Role, made.Spec.Hostname = v1alpha1.ApprovalApproved, v1alpha1.RoleControlPlane, "cp-1"
	if _, err := w.approver.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, made.Name, made, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("approve: %v", err)
	}
	w.slotsAre(t, made.Name)
}

func TestTrustAnnotationsNeedTheVerb(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 1), testContext(t)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.TrustMaintenanceFingerprintAnnotation, fingerprintOf(0, 1))
	for _, subresource := range [][]string{nil, {"status"}, {"finalize"}} {
		got, err := w.writer.IchorV1alpha1().TalosMachines().Patch(ctx, machineUUID(0), types.MergePatchType, patch, metav1.PatchOptions{}, subresource...)
		if subresource == nil && !hasCause(err, "MissingVerb") {
			t.Errorf("annotation by a writer: %v, want a 403", err)
		}
		if got != nil && len(got.Annotations) > 0 {
			t.Errorf("annotation through %v: %v", subresource, got.Annotations)
		}
	}
	created := machine(1)
	created.Annotations = map[string]string{v1alpha1.TrustMaintenanceFingerprintAnnotation: "x"}
	if _, err := w.writer.IchorV1alpha1().TalosMachines().Create(ctx, created, metav1.CreateOptions{}); !hasCause(err, "MissingVerb") {
		t.Errorf("creation with the annotation by a writer: %v, want a 403", err)
	}
	if _, err := w.approver.IchorV1alpha1().TalosMachines().Patch(ctx, machineUUID(0), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Errorf("annotation by an approver: %v", err)
	}
	if _, err := w.writer.IchorV1alpha1().TalosMachines().Patch(ctx, machineUUID(0), types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("label by a writer beside the annotation: %v", err)
	}
}
