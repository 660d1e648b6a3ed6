// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/apiserver/harness"
)

// ask merges a patch into a machine as somebody.
func (w *world) ask(ctx context.Context, t *testing.T, who string, n int, patch string) (*v1alpha1.TalosMachine, error) {
	t.Helper()
	return w.Client(t, 0, who).IchorV1alpha1().TalosMachines().Patch(ctx, machineUUID(n), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
}

func TestHowAMachineIsRemovedIsForThoseWhoMayRemoveIt(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 2), testContext(t)
	if _, err := w.approver.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, machineUUID(0), approve(w.machines[0], v1alpha1.RoleWorker), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	forced := func(consent string) string {
		return fmt.Sprintf(`{"spec":{"removal":{"force":true,"consent":%q,"by":"forged","at":"2001-01-01T00:00:00Z"}}}`, consent)
	}
	if _, err := w.ask(ctx, t, harness.Writer, 0, `{"spec":{"removal":{"skipDrain":true}}}`); !hasCause(err, `needs the verb "remove" on talosmachines/removal`) {
		t.Errorf("to skip the drain without the verb: %v", err)
	}
	if _, err := w.ask(ctx, t, harness.Approver, 0, forced(machineUUID(1))); !apierrors.IsInvalid(err) || !hasCause(err, "spec.removal.consent") {
		t.Errorf("with the consent for another machine: %v", err)
	}
	if _, err := w.ask(ctx, t, harness.Approver, 0, `{"spec":{"removal":{"wipeDisks":[{"serial":"NONE"}]}}}`); !apierrors.IsInvalid(err) || !hasCause(err, "spec.removal.wipeDisks[0]") {
		t.Errorf("a disk that isn't there: %v", err)
	}
	m, err := w.ask(ctx, t, harness.Approver, 0, forced(machineUUID(0)))
	if err != nil {
		t.Fatal(err)
	}
	asked := m.Spec.Removal
	if asked == nil || asked.By != harness.Approver || asked.At == nil || asked.At.Year() == 2001 {
		t.Fatalf("who asked, and when: %+v", asked)
	}
	// Who changes something else changes nothing of that, and needs no verb.
	m, err = w.ask(ctx, t, harness.Writer, 0, `{"metadata":{"labels":{"rack":"1"}}}`)
	if err != nil || m.Spec.Removal.By != harness.Approver || !m.Spec.Removal.At.Equal(asked.At) {
		t.Fatalf("after another's change: %+v, %v", m.Spec.Removal, err)
	}
	if err := w.approver.IchorV1alpha1().TalosMachines().Delete(ctx, m.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for what, patch := range map[string]string{
		"consent that is taken back":              `{"spec":{"removal":null}}`,
		"a disk that is named when it's too late": `{"spec":{"removal":{"wipeDisks":[{"serial":"S2"}]}}}`,
	} {
		if _, err := w.ask(ctx, t, harness.Approver, 0, patch); !apierrors.IsInvalid(err) || !hasCause(err, "spec.removal") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := w.ask(ctx, t, harness.Approver, 0, `{"spec":{"removal":{"skipDrain":true}}}`); err != nil {
		t.Errorf("to skip the drain of a machine that is being removed: %v", err)
	}
}

func TestAClusterIsDeletedWithItsMachinesByItsPolicyOnly(t *testing.T) {
	t.Parallel()
	for _, policy := range []v1alpha1.ClusterDeletionPolicy{v1alpha1.ClusterDeletionOrphan, v1alpha1.ClusterDeletionDestroy} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			w, ctx := newWorld(t, 1, 3), testContext(t)
			machines, clusters := w.approver.IchorV1alpha1().TalosMachines(), w.admin.IchorV1alpha1().TalosClusters()
			for n, role := range []v1alpha1.MachineRole{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker} {
				if _, err := machines.UpdateApproval(ctx, machineUUID(n), approve(w.machines[n], role), metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			change := func(patch string) error {
				_, err := clusters.Patch(ctx, "prod", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
				return err
			}
			remove := func() error { return clusters.Delete(ctx, "prod", metav1.DeleteOptions{}) }
			if err := remove(); !hasCause(err, "ClusterInUse") {
				t.Fatalf("without a policy: %v", err)
			}
			if err := change(`{"spec":{"deletionPolicy":"Destroy","deletionConsent":"another"}}`); !apierrors.IsInvalid(err) || !hasCause(err, "spec.deletionConsent") {
				t.Errorf("the consent for another cluster: %v", err)
			}
			set := map[v1alpha1.ClusterDeletionPolicy]string{
				v1alpha1.ClusterDeletionOrphan:  `{"spec":{"deletionPolicy":"Orphan"}}`,
				v1alpha1.ClusterDeletionDestroy: `{"spec":{"deletionPolicy":"Destroy","deletionConsent":"prod"}}`,
			}[policy]
			if err := change(set); err != nil {
				t.Fatal(err)
			}
			if _, err := w.ask(ctx, t, harness.Approver, 1, `{"spec":{"locked":true}}`); err != nil {
				t.Fatal(err)
			}
			if err := remove(); !hasCause(err, "Locked spec.locked") {
				t.Errorf("with a locked machine: %v", err)
			}
			if _, err := w.ask(ctx, t, harness.Approver, 1, `{"spec":{"locked":false}}`); err != nil {
				t.Fatal(err)
			}
			if err := change(`{"spec":{"locked":true}}`); err != nil {
				t.Fatal(err)
			}
			if err := remove(); !hasCause(err, "Locked spec.locked: the cluster is locked") {
				t.Errorf("while it is locked: %v", err)
			}
			if err := change(`{"spec":{"locked":false}}`); err != nil {
				t.Fatal(err)
			}
			w.hold(ctx, t, &v1alpha1.ActiveOperation{Name: "reboot-1", UID: "u", Since: metav1.Now()})
			if err := remove(); !hasCause(err, "OperationRunning") {
				t.Errorf("while an operation works: %v", err)
			}
			w.hold(ctx, t, nil)
			if err := w.controller.IchorV1alpha1().TalosMachines().Delete(ctx, machineUUID(1), metav1.DeleteOptions{}); !hasCause(err, "MissingVerb") {
				t.Errorf("the controller removes a machine of a cluster that stays: %v", err)
			}
			if err := remove(); err != nil {
				t.Fatalf("deletion: %v", err)
			}
			if err := change(`{"spec":{"deletionPolicy":"Refuse","deletionConsent":null}}`); !apierrors.IsInvalid(err) {
				t.Errorf("another policy when it is too late: %v", err)
			}
			if policy == v1alpha1.ClusterDeletionDestroy {
				if err := change(`{"spec":{"deletionPolicy":"Orphan","deletionConsent":null}}`); err != nil {
					t.Errorf("to stop the destruction: %v", err)
				}
			}
			if _, err := machines.UpdateApproval(ctx, machineUUID(2), approve(w.machines[2], v1alpha1.RoleWorker), metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !hasCause(err, "the cluster is being deleted") {
				t.Errorf("approval into a cluster that goes: %v", err)
			}
			for n := range 3 { // the last control plane, too
				if err := w.controller.IchorV1alpha1().TalosMachines().Delete(ctx, machineUUID(n), metav1.DeleteOptions{}); err != nil {
					t.Errorf("the controller deletes machine %d: %v", n, err)
				}
			}
		})
	}
}

// hold claims the cluster for an operation, as the controller does.
func (w *world) hold(ctx context.Context, t *testing.T, holder *v1alpha1.ActiveOperation) {
	t.Helper()
	clusters := w.controller.IchorV1alpha1().TalosClusters()
	cluster, err := clusters.Get(ctx, "prod", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Status.ActiveOperation = holder
	if _, err := clusters.UpdateStatus(ctx, cluster, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestADestructionNeedsTheVerbForEveryMachine(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 1), testContext(t)
	consent := []byte(`{"spec":{"deletionPolicy":"Destroy","deletionConsent":"prod"}}`)
	if _, err := w.writer.IchorV1alpha1().TalosClusters().Patch(ctx, "prod", types.MergePatchType, consent, metav1.PatchOptions{}); !hasCause(err, `needs the verb "remove" on talosmachines/removal`) {
		t.Errorf("consent without the verb, to what another may delete: %v", err)
	}
	if _, err := w.admin.IchorV1alpha1().TalosClusters().Patch(ctx, "prod", types.MergePatchType, []byte(`{"spec":{"deletionPolicy":"Orphan"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.writer.IchorV1alpha1().TalosClusters().Delete(ctx, "prod", metav1.DeleteOptions{}); !hasCause(err, `needs the verb "remove" on talosmachines/removal`) {
		t.Errorf("without the verb: %v", err)
	}
}
