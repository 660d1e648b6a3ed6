// SPDX-License-Identifier: Apache-2.0

package operations_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"maesh.dev/ichor/controllers/drain"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	operation = types.UID("5f0c2f6e-6f0e-4d0c-9d8e-2c1f5b0a7e11")
	web       = "web"
)

// One cluster for all, as starting one takes a while; the only Node is looked at before there are others.
func TestWhatOperationsDoToKubernetes(t *testing.T) {
	w := start(t)
	for _, story := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"the only Node of a cluster is cordoned, and nothing is evicted", onlyNode},
		{"a Node is drained as its budget allows, and given back", drainedNode},
		{"a gate over an object waits for the right, and then for the object", objectGate},
		{"a gate's Job is made once, where an administrator allows it", jobGate},
	} {
		t.Run(story.name, func(t *testing.T) { story.run(t, w) })
	}
}

func onlyNode(t *testing.T, w *world) {
	nodes, err := w.admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	only, d := nodes.Items[0].Name, drain.Drainer{Client: w.controller}
	if byUs, err := d.Cordon(t.Context(), only, operation); err != nil || !byUs {
		t.Fatalf("cordon: %t %v", byUs, err)
	}
	w.runs(t, v1alpha1.SystemNamespace, "controller", only, nil)
	if got, err := d.Drain(t.Context(), only, drain.Options{}); err != nil || !got.Done || got.Asked != 0 {
		t.Errorf("drain: %+v %v", got, err)
	}
	must(t, d.Uncordon(t.Context(), only, operation))
	w.gone(t, v1alpha1.SystemNamespace, "controller")
}

func drainedNode(t *testing.T, w *world) {
	ctx, d := t.Context(), drain.Drainer{Client: w.controller}
	_, err := w.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	must(t, err)
	_, err = w.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: web}}, metav1.CreateOptions{})
	must(t, err)
	set, err := w.admin.AppsV1().ReplicaSets(web).Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "site"},
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "site"}}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "site"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "site:1"}}},
		}},
	}, metav1.CreateOptions{})
	must(t, err)
	owner := metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	for _, name := range []string{"one", "two", "three"} {
		w.runs(t, web, name, "a", owner)
	}
	w.runs(t, web, "bare", "a", nil)
	_, err = w.admin.PolicyV1().PodDisruptionBudgets(web).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "site"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"owned": "true"}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	eventually(t, "the budget is judged", func() string {
		budget, err := w.admin.PolicyV1().PodDisruptionBudgets(web).Get(ctx, "site", metav1.GetOptions{})
		if err != nil || budget.Status.ExpectedPods != 3 || budget.Status.DisruptionsAllowed != 1 {
			return fmt.Sprintf("%+v %v", budget.Status, err)
		}
		return ""
	})
	volume, err := w.admin.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-1"},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "rbd.csi", NodeName: "a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv-1")}},
	}, metav1.CreateOptions{})
	must(t, err)

	// A person's cordon isn't ours.
	_, err = w.admin.CoreV1().Nodes().Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	must(t, err)
	if byUs, err := d.Cordon(ctx, "a", operation); err != nil || byUs {
		t.Errorf("a cordoned Node: by us %t, %v", byUs, err)
	}
	_, err = w.admin.CoreV1().Nodes().Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"unschedulable":false}}`), metav1.PatchOptions{})
	must(t, err)
	for range 2 {
		if byUs, err := d.Cordon(ctx, "a", operation); err != nil || !byUs {
			t.Fatalf("cordon: by us %t, %v", byUs, err)
		}
	}

	pass := func() drain.Result {
		t.Helper()
		got, err := d.Drain(ctx, "a", drain.Options{})
		must(t, err)
		return got
	}
	// One may go, two are held, and named with the budget's numbers.
	first := pass()
	if first.Done || first.Asked != 1 || count(first, drain.Budget) != 2 || !strings.Contains(first.Message(), "PodDisruptionBudget web/site (allows 0 disruptions: 2 of 3 pods are healthy, 2 must be)") &&
		!strings.Contains(first.Message(), "PodDisruptionBudget web/site (allows 0 disruptions: 3 of 3 pods are healthy, 2 must be)") {
		t.Fatalf("first pass: %+v", first)
	}
	// The other two go one by one, as others take their places elsewhere.
	for replaced := range 2 {
		w.ends(t, "a")
		w.runs(t, web, fmt.Sprint("elsewhere-", replaced), "b", owner)
		eventually(t, "the next is evicted", func() string {
			if got := pass(); got.Asked != 1 {
				return got.Message()
			}
			return ""
		})
	}
	w.ends(t, "a")
	last := pass()
	if last.Done || count(last, drain.Attached) != 1 || !strings.Contains(last.Message(), "volume pv-1 is still attached by rbd.csi") {
		t.Errorf("with its volume: %+v", last)
	}
	must(t, w.admin.StorageV1().VolumeAttachments().Delete(ctx, volume.Name, metav1.DeleteOptions{}))
	if last = pass(); !last.Done || len(last.Left) != 1 || !strings.Contains(last.Left[0], "pod web/bare") {
		t.Errorf("at the end: %+v", last)
	}
	// Nobody on other Nodes was asked.
	elsewhere, err := w.admin.CoreV1().Pods(web).List(ctx, metav1.ListOptions{})
	must(t, err)
	for _, pod := range elsewhere.Items {
		if pod.DeletionTimestamp != nil {
			t.Errorf("%s on Node %s was told to end", pod.Name, pod.Spec.NodeName)
		}
	}

	must(t, d.Uncordon(ctx, "a", operation))
	node, err := w.admin.CoreV1().Nodes().Get(ctx, "a", metav1.GetOptions{})
	must(t, err)
	if _, marked := node.Annotations[v1alpha1.CordonedByAnnotation]; marked || node.Spec.Unschedulable {
		t.Errorf("given back: cordoned %t, marked %t", node.Spec.Unschedulable, marked)
	}
}

func count(result drain.Result, reason drain.Reason) (n int) {
	for _, blocker := range result.Blockers {
		if blocker.Reason == reason {
			n++
		}
	}
	return n
}

// runs makes a pod that runs on a Node, as a kubelet reports it.
func (w *world) runs(t *testing.T, namespace, name, node string, owner *metav1.OwnerReference) {
	t.Helper()
	pods := w.admin.CoreV1().Pods(namespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "site:1"}},
			AutomountServiceAccountToken: ptr.To(false), Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	if owner != nil {
		pod.OwnerReferences, pod.Labels = []metav1.OwnerReference{*owner}, map[string]string{"app": "site", "owned": "true"}
	}
	eventually(t, "make pod "+name, func() string { // a new namespace has no ServiceAccount yet
		made, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
		if err != nil {
			return err.Error()
		}
		pod = made
		return ""
	})
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	must(t, err)
}

// ends deletes the pods of a Node that were told to end, as a kubelet does.
func (w *world) ends(t *testing.T, node string) {
	t.Helper()
	pods, err := w.admin.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	must(t, err)
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil {
			w.gone(t, pod.Namespace, pod.Name)
		}
	}
}

// gone deletes a pod at once.
func (w *world) gone(t *testing.T, namespace, name string) {
	t.Helper()
	err := w.admin.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}
