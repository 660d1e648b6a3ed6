// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestRemoval(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 4), testContext(t)
	machines := w.approver.IchorV1alpha1().TalosMachines()
	for n, role := range []v1alpha1.MachineRole{v1alpha1.RoleControlPlane, v1alpha1.RoleControlPlane, v1alpha1.RoleWorker} {
		if _, err := machines.UpdateApproval(ctx, machineUUID(n), approve(w.machines[n], role), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	lock := func(locked string) {
		t.Helper()
		if _, err := machines.Patch(ctx, machineUUID(0), types.MergePatchType, []byte(`{"spec":{"locked":`+locked+`}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(client string, n int) error {
		return w.Client(t, 0, client).IchorV1alpha1().TalosMachines().Delete(ctx, machineUUID(n), metav1.DeleteOptions{})
	}

	if err := remove("writer", 0); !hasCause(err, `MissingVerb : user "writer" needs the verb "remove" on talosmachines/removal`) {
		t.Errorf("removal without the verb: %v", err)
	}
	if err := remove("controller", 2); !hasCause(err, "MissingVerb") {
		t.Errorf("removal of an approved machine by the controller: %v", err)
	}
	lock("true")
	if err := remove("approver", 0); !hasCause(err, "Locked spec.locked") {
		t.Errorf("removal of a locked machine: %v", err)
	}
	lock("false")
	lockCluster := func(locked string) {
		t.Helper()
		if _, err := w.admin.IchorV1alpha1().TalosClusters().Patch(ctx, "prod", types.MergePatchType, []byte(`{"spec":{"locked":`+locked+`}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	lockCluster("true")
	if err := remove("approver", 0); !hasCause(err, "Locked spec.clusterRef.name: cluster prod is locked") {
		t.Errorf("removal of a machine of a locked cluster: %v", err)
	}
	lockCluster("false")
	if err := w.approver.IchorV1alpha1().TalosMachines().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); !hasCause(err, "ApprovedInCollection") {
		t.Errorf("removal of all at once: %v", err)
	}
	if err := w.admin.IchorV1alpha1().TalosClusters().Delete(ctx, "prod", metav1.DeleteOptions{}); !hasCause(err, "ClusterInUse") {
		t.Errorf("deletion of a cluster with control planes: %v", err)
	}

	if err := remove("approver", 0); err != nil {
		t.Fatalf("removal of one of two control planes: %v", err)
	}
	leaving, err := machines.Get(ctx, machineUUID(0), metav1.GetOptions{})
	if err != nil || leaving.DeletionTimestamp == nil {
		t.Fatalf("the finalizer doesn't hold the machine: %v, %+v", err, leaving.ObjectMeta)
	}
	w.slotsAre(t, machineUUID(0), machineUUID(1))
	if _, err := machines.UpdateApproval(ctx, leaving.Name, leaving, metav1.UpdateOptions{}); !hasCause(err, "Deleting") {
		t.Errorf("approval of a machine that is being deleted: %v", err)
	}
	if err := remove("approver", 1); !hasCause(err, "LastControlPlane") {
		t.Errorf("removal of the last control plane: %v", err)
	}

	leaving.Finalizers = nil
	if _, err := w.writer.IchorV1alpha1().TalosMachines().Update(ctx, leaving, metav1.UpdateOptions{}); err != nil {
		t.Errorf("update without the finalizer: %v", err)
	}
	kept, err := machines.Get(ctx, leaving.Name, metav1.GetOptions{})
	if err != nil || len(kept.Finalizers) != 1 {
		t.Fatalf("the main resource took the finalizer: %v, %v", err, kept)
	}
	kept.Finalizers = nil
	if _, err := w.controller.IchorV1alpha1().TalosMachines().Finalize(ctx, kept.Name, kept, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("finalize: %v", err)
	}
	if _, err := machines.Get(ctx, kept.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the machine is still there: %v", err)
	}
	w.slotsAre(t, machineUUID(1))

	if err := remove("controller", 3); err != nil {
		t.Errorf("deletion of a pending machine by the controller: %v", err)
	}
	if _, err := machines.Patch(ctx, machineUUID(1), types.MergePatchType, []byte(`{"spec":{"deletionPolicy":"Orphan"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := remove("approver", 1); err != nil {
		t.Errorf("letting the last control plane go as it is: %v", err)
	}
}

func TestAFinalizerStaysOnAMachineThatIsNotDeleted(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 1), testContext(t)
	body := w.machines[0].DeepCopy()
	body.Finalizers = nil
	if _, err := w.controller.IchorV1alpha1().TalosMachines().Finalize(ctx, body.Name, body, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !hasCause(err, "metadata.finalizers") {
		t.Errorf("finalize: %v, want a 422", err)
	}
}

func TestPendingMachinesGoTogether(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 3), testContext(t)
	if err := w.admin.IchorV1alpha1().TalosClusters().Delete(ctx, "prod", metav1.DeleteOptions{}); !hasCause(err, "ClusterInUse") || !strings.Contains(err.Error(), "3 machines") {
		t.Errorf("deletion of a cluster with pending machines: %v", err)
	}
	if err := w.approver.IchorV1alpha1().TalosMachines().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatalf("deletion of pending machines: %v", err)
	}
	list, err := w.approver.IchorV1alpha1().TalosMachines().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Items {
		if m.DeletionTimestamp == nil {
			t.Errorf("machine %s wasn't deleted", m.Name)
		}
		m.Finalizers = nil
		if _, err := w.controller.IchorV1alpha1().TalosMachines().Finalize(ctx, m.Name, &m, metav1.UpdateOptions{}); err != nil {
			t.Errorf("finalize: %v", err)
		}
	}
	if err := w.admin.IchorV1alpha1().TalosClusters().Delete(ctx, "prod", metav1.DeleteOptions{}); err != nil {
		t.Errorf("deletion of an empty cluster: %v", err)
	}
}
