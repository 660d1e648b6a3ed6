// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"maesh.dev/ichor/controllers/operation/gates"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/localstack"
)

// collectedJob makes a gate's Job, and deletes its operation: Kubernetes collects the Job, though its owner belongs to no
// namespace and to an aggregated API. A Job of an operation that is there stays.
func collectedJob(t *testing.T, s *suite) {
	ctx := t.Context()
	const namespace = "gates"
	_, err := s.kubernetes.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.kubernetes.BatchV1().CronJobs(namespace).Create(ctx, &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "smoke"},
		Spec: batchv1.CronJobSpec{Schedule: "0 0 1 1 *", Suspend: ptr.To(true), JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "smoke:1"}}}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	gate := v1alpha1.OperationGate{Name: "smoke", Job: &v1alpha1.JobGate{Namespace: namespace, CronJob: "smoke"}}
	begin := func(name string) string {
		t.Helper()
		operation, err := s.operator.IchorV1alpha1().TalosOperations().Create(ctx, &v1alpha1.TalosOperation{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.TalosOperationSpec{
				ClusterRef: v1alpha1.ClusterReference{Name: localstack.ClusterName}, Reboot: &v1alpha1.Reboot{}, Mode: v1alpha1.OperationModePlan,
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		occasion := gates.Occasion{Operation: name, UID: operation.UID, Machine: "any"}
		if got, err := (gates.Checker{Kubernetes: s.kubernetes}).Check(ctx, gate, occasion); err != nil || got.State != gates.Waiting {
			t.Fatalf("%+v %v", got, err)
		}
		return gates.JobName(gate.Name, occasion)
	}
	kept, collected := begin("keeps-its-job"), begin("takes-its-job-along")
	if err := s.operator.IchorV1alpha1().TalosOperations().Delete(ctx, "takes-its-job-along", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, func() error {
		_, err := s.kubernetes.BatchV1().Jobs(namespace).Get(ctx, collected, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("the Job of an operation that was deleted is there"), err)
	})
	if _, err := s.kubernetes.BatchV1().Jobs(namespace).Get(ctx, kept, metav1.GetOptions{}); err != nil {
		t.Errorf("the Job of an operation that is there: %v", err)
	}
	if err := s.operator.IchorV1alpha1().TalosOperations().Delete(ctx, "keeps-its-job", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
