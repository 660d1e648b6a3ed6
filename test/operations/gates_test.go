// SPDX-License-Identifier: Apache-2.0

package operations_test

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"maesh.dev/ichor/controllers/operation/gates"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

var occasion = gates.Occasion{Operation: "upgrade", UID: operation, Machine: "4c4c4544-0051-3610-8052-b4c04f4d3258"}

// says asks a gate until it is in a state and says something.
func (w *world) says(t *testing.T, gate v1alpha1.OperationGate, state gates.State, text string) {
	t.Helper()
	checker := gates.Checker{Kubernetes: w.controller, Objects: w.objects}
	eventually(t, "the gate is "+string(state), func() string {
		got, err := checker.Check(t.Context(), gate, occasion)
		switch {
		case err != nil:
			return err.Error()
		case got.State != state || !strings.Contains(got.Message, text):
			return string(got.State) + ": " + got.Message
		}
		return ""
	})
}

func objectGate(t *testing.T, w *world) {
	ctx := t.Context()
	gate := v1alpha1.OperationGate{Name: "calm", CEL: &v1alpha1.CELGate{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "weather", Expression: "object.data.wind == 'calm'",
	}}
	w.says(t, gate, gates.Waiting, "may not get configmaps")
	// What an administrator adds is gathered into the controller's role.
	_, err := w.admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "weather", Labels: map[string]string{gates.GatesRoleLabel: "true"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"weather"}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	w.says(t, gate, gates.Waiting, "there is no ConfigMap default/weather")
	weather := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "weather"}, Data: map[string]string{"wind": "strong"}}
	weather, err = w.admin.CoreV1().ConfigMaps("default").Create(ctx, weather, metav1.CreateOptions{})
	must(t, err)
	w.says(t, gate, gates.Waiting, "isn't true of ConfigMap default/weather")
	weather.Data["wind"] = "calm"
	_, err = w.admin.CoreV1().ConfigMaps("default").Update(ctx, weather, metav1.UpdateOptions{})
	must(t, err)
	w.says(t, gate, gates.Opened, "")

	gate.CEL.Kind, gate.CEL.Expression = "ConfigMapping", "true"
	w.says(t, gate, gates.Waiting, "no kind ConfigMapping")
	gate.CEL.APIVersion = "ceph.rook.io/v1"
	w.says(t, gate, gates.Waiting, "no API ceph.rook.io/v1")
}

func jobGate(t *testing.T, w *world) {
	ctx := t.Context()
	const namespace = "checks"
	gate := v1alpha1.OperationGate{Name: "smoke", Job: &v1alpha1.JobGate{Namespace: namespace, CronJob: "smoke"}}
	_, err := w.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(t, err)
	w.says(t, gate, gates.Waiting, "may not read or make Jobs in namespace checks")
	// The line that the message tells.
	_, err = w.admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "ichor-gate-jobs"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: gates.JobsRole},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: v1alpha1.SystemNamespace, Name: "ichor-controller"}},
	}, metav1.CreateOptions{})
	must(t, err)
	w.says(t, gate, gates.Refused, "no CronJob checks/smoke")
	_, err = w.admin.BatchV1().CronJobs(namespace).Create(ctx, &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "smoke"},
		Spec: batchv1.CronJobSpec{Schedule: "0 0 1 1 *", Suspend: ptr.To(true), JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "smoke:1"}}}},
		}}},
	}, metav1.CreateOptions{})
	must(t, err)
	w.says(t, gate, gates.Waiting, "has yet to succeed")
	w.says(t, gate, gates.Waiting, "has yet to succeed")
	jobs, err := w.admin.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.OperationUIDLabel + "=" + string(operation)})
	must(t, err)
	if len(jobs.Items) != 1 {
		t.Fatalf("there are %d Jobs", len(jobs.Items))
	}
	// As the Job controller would end it.
	job, now := &jobs.Items[0], metav1.Now()
	job.Status.StartTime, job.Status.CompletionTime, job.Status.Succeeded = &now, &now, 1
	job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	job.Status.Ready, job.Status.Terminating = ptr.To[int32](0), ptr.To[int32](0)
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastProbeTime: now, LastTransitionTime: now})
	}
	_, err = w.admin.BatchV1().Jobs(namespace).UpdateStatus(ctx, job, metav1.UpdateOptions{})
	must(t, err)
	w.says(t, gate, gates.Opened, "")
}
