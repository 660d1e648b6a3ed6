// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/apiserver/harness"
)

func reboot() *v1alpha1.TalosOperation {
	return &v1alpha1.TalosOperation{
		ObjectMeta: metav1.ObjectMeta{Name: "reboot"},
		Spec:       v1alpha1.TalosOperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Reboot: &v1alpha1.Reboot{}},
	}
}

func TestAnOperationChangesByItsDoorsOnly(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	ctx := testContext(t)
	operations := env.Client(t, 0, harness.Approver).IchorV1alpha1().TalosOperations()
	forged := reboot()
	forged.Spec.Control = &v1alpha1.OperationControl{ResumeRequests: 7, By: "somebody"}
	made, err := operations.Create(ctx, forged, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if made.Spec.Control != nil {
		t.Errorf("whoever makes an operation resumes it: %+v", made.Spec.Control)
	}

	changed := made.DeepCopy()
	changed.Spec.Reboot.Mode = v1alpha1.RebootPowerCycle
	if _, err := operations.Update(ctx, changed, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("another reboot: %v, want a 422", err)
	}
	suspended := made.DeepCopy()
	suspended.Spec.Suspend = true
	suspended.Spec.Control = forged.Spec.Control
	if suspended, err = operations.Update(ctx, suspended, metav1.UpdateOptions{}); err != nil || !suspended.Spec.Suspend || suspended.Spec.Control != nil || suspended.Generation != 2 {
		t.Errorf("suspended: %+v, generation %d, %v", suspended.Spec, suspended.Generation, err)
	}

	for n := int64(1); n <= 2; n++ {
		resumed, err := operations.Resume(ctx, made.Name, suspended, metav1.UpdateOptions{})
		if err != nil || resumed.Spec.Control == nil || resumed.Spec.Control.ResumeRequests != n || resumed.Spec.Control.By != harness.Approver || resumed.Spec.Control.At == nil {
			t.Fatalf("resumed %d times: %+v, %v", n, resumed.Spec.Control, err)
		}
		suspended = resumed
	}
	dry, err := operations.Cancel(ctx, made.Name, suspended, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || !dry.Spec.Control.CancelRequested {
		t.Errorf("a dry run of cancel: %+v, %v", dry, err)
	}
	cancelled, err := operations.Cancel(ctx, made.Name, suspended, metav1.UpdateOptions{})
	if err != nil || !cancelled.Spec.Control.CancelRequested || cancelled.Spec.Control.ResumeRequests != 2 {
		t.Fatalf("cancelled: %+v, %v", cancelled, err)
	}
	again, err := operations.Cancel(ctx, made.Name, cancelled, metav1.UpdateOptions{})
	if err != nil || again.ResourceVersion != cancelled.ResourceVersion {
		t.Errorf("cancelled again: %+v, %v, want no change", again, err)
	}
	if _, err := operations.Resume(ctx, made.Name, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("resumed with an old version: %v, want a 409", err)
	}
}

func TestAnOperationThatWorksCantBeDeleted(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	ctx := testContext(t)
	operations := env.Client(t, 0, harness.Admin).IchorV1alpha1().TalosOperations()
	made, err := operations.Create(ctx, reboot(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Status.Phase = v1alpha1.OperationRunning
	if made, err = operations.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := operations.Delete(ctx, made.Name, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleted while it runs: %v, want a 403", err)
	}
	if err := operations.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("all deleted while one runs: %v, want a 403", err)
	}
	made.Status.Phase = v1alpha1.OperationSucceeded
	if made, err = operations.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	made.Status.Phase = v1alpha1.OperationRunning
	if _, err := operations.UpdateStatus(ctx, made, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("run again after its end: %v, want a 422", err)
	}
	if _, err := operations.Resume(ctx, made.Name, &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Name: made.Name, ResourceVersion: made.ResourceVersion}}, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("resumed after its end: %v, want a 422", err)
	}
	if err := operations.Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil {
		t.Errorf("deleted after its end: %v", err)
	}
}
