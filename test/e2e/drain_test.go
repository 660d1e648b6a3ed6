// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/kubernetes/kubelet/pod"
	"maesh.dev/ichor/test/localstack"
)

// shop is the namespace of what runs on the worker that goes down, and the operation's name.
const shop = "shop"

// drainedWorker reboots a worker with pods that Kubernetes made, placed and runs. A gate's Job fails and then succeeds; a
// budget holds the pods, and when it allows one to go, they are made anew on other Nodes; a volume is waited for. A DaemonSet's
// pod and one of nobody's stay, and are started again after the reboot.
func drainedWorker(t *testing.T, s *suite) {
	ctx, worker := t.Context(), s.readyWorker(t)
	node := worker.Status.NodeName
	s.deployShop(t, node)
	boots := s.rebootCalls(t, worker)

	operations := s.operator.IchorV1alpha1().TalosOperations()
	operation := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Name: shop}}
	operation.Spec.ClusterRef.Name, operation.Spec.Reboot = localstack.ClusterName, &v1alpha1.Reboot{}
	operation.Spec.Machines = &v1alpha1.OperationMachines{Names: []string{worker.Name}}
	operation.Spec.Gates = []v1alpha1.OperationGate{{Name: "smoke", Job: &v1alpha1.JobGate{Namespace: shop, CronJob: "smoke"}}}
	if _, err := operations.Create(ctx, operation, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	s.awaitOperation(t, shop, v1alpha1.OperationPaused, "smoke")
	s.patch(t, func(ctx context.Context, data []byte) error {
		_, err := s.kubernetes.BatchV1().CronJobs(shop).Patch(ctx, "smoke", types.MergePatchType, data, metav1.PatchOptions{})
		return err
	}, `{"spec":{"jobTemplate":{"spec":{"template":{"metadata":{"annotations":{%q:"0"}}}}}}}`, pod.ExitCode)
	s.must(t, s.stack.Dir().KubeconfigOf("operator"), "ichor", "operation", "resume", shop)

	s.awaitOperation(t, shop, v1alpha1.OperationRunning, "pod shop/site-", "PodDisruptionBudget shop/site (allows 0 disruptions: 2 of 2 pods are healthy, 2 must be)")
	if told := s.rebootCalls(t, worker) - boots; told != 0 {
		t.Errorf("the machine was told to reboot with pods that a budget holds")
	}
	s.patch(t, func(ctx context.Context, data []byte) error {
		_, err := s.kubernetes.PolicyV1().PodDisruptionBudgets(shop).Patch(ctx, "site", types.MergePatchType, data, metav1.PatchOptions{})
		return err
	}, `{"spec":{"minAvailable":%d}}`, 1)

	s.awaitOperation(t, shop, v1alpha1.OperationRunning, "volume disk-1 is still attached by rbd.csi")
	s.awaitSite(t, func(p *corev1.Pod) bool { return p.Spec.NodeName != node })
	if told := s.rebootCalls(t, worker) - boots; told != 0 {
		t.Errorf("the machine was told to reboot with a volume that is attached")
	}
	if err := s.kubernetes.StorageV1().VolumeAttachments().Delete(ctx, "shop-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.awaitOperation(t, shop, v1alpha1.OperationSucceeded)

	if told := s.rebootCalls(t, worker) - boots; told != 1 {
		t.Errorf("the machine was told to reboot %d times", told)
	}
	for _, app := range []string{"agent", "bare"} {
		eventually(t, time.Minute, func() error {
			p, err := s.podOn(ctx, app, node)
			if err != nil {
				return err
			}
			if restarts := p.Status.ContainerStatuses[0].RestartCount; restarts != 1 || p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
				return fmt.Errorf("pod %s was started again %d times, and is %s", p.Name, restarts, p.Status.Phase)
			}
			return nil
		})
	}
	if now, err := s.kubernetes.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); err != nil || now.Spec.Unschedulable {
		t.Errorf("Node %s is still cordoned, or unknown: %v", node, err)
	}
	if err := s.kubernetes.CoreV1().Namespaces().Delete(ctx, shop, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, func() error {
		_, err := s.kubernetes.CoreV1().Namespaces().Get(ctx, shop, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("the namespace is there"), err)
	})
}

// deployShop has a site of two pods with a budget that lets none go, both on a Node, and there a pod of a DaemonSet, one of
// nobody's, and a volume; and a CronJob for a gate, which fails.
func (s *suite) deployShop(t *testing.T, node string) {
	t.Helper()
	ctx, k := t.Context(), s.kubernetes
	create := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("create %s: %v", what, err)
		}
	}
	_, err := k.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}, metav1.CreateOptions{})
	create("namespace", err)
	_, err = k.RbacV1().RoleBindings(shop).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "ichor-gate-jobs"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "ichor-controller-gate-jobs"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.SystemNamespace, Name: "ichor-controller"}},
	}, metav1.CreateOptions{})
	create("role binding", err)
	_, err = k.BatchV1().CronJobs(shop).Create(ctx, &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "smoke"},
		Spec: batchv1.CronJobSpec{Schedule: "0 0 1 1 *", Suspend: ptr.To(true), JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](0),
			Template:     template("smoke", corev1.RestartPolicyNever, map[string]string{pod.ExitCode: "1"}),
		}}},
	}, metav1.CreateOptions{})
	create("cron job", err)

	// Only this Node takes pods while they are placed.
	nodes, err := k.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes.Items {
		if other := &nodes.Items[i]; other.Name != node && !other.Spec.Unschedulable {
			s.setUnschedulable(t, other.Name, true)
			defer s.setUnschedulable(t, other.Name, false)
		}
	}
	site := template("site", corev1.RestartPolicyAlways, map[string]string{pod.StopsAfter: "2s"})
	_, err = k.AppsV1().Deployments(shop).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "site"},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: site.Labels}, Template: site},
	}, metav1.CreateOptions{})
	create("deployment", err)
	_, err = k.PolicyV1().PodDisruptionBudgets(shop).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "site"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(2)), Selector: &metav1.LabelSelector{MatchLabels: site.Labels}},
	}, metav1.CreateOptions{})
	create("budget", err)
	agent := template("agent", corev1.RestartPolicyAlways, nil)
	_, err = k.AppsV1().DaemonSets(shop).Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: agent.Labels}, Template: agent},
	}, metav1.CreateOptions{})
	create("daemon set", err)
	// A namespace's account is made a moment after it.
	eventually(t, time.Minute, func() error {
		bare := template("bare", corev1.RestartPolicyAlways, nil)
		_, err := k.CoreV1().Pods(shop).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bare", Labels: bare.Labels}, Spec: bare.Spec}, metav1.CreateOptions{})
		return err
	})
	_, err = k.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "shop-1"},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "rbd.csi", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("disk-1")}},
	}, metav1.CreateOptions{})
	create("volume attachment", err)

	s.awaitSite(t, func(p *corev1.Pod) bool { return p.Spec.NodeName == node })
	for _, app := range []string{"agent", "bare"} {
		eventually(t, time.Minute, func() error { _, err := s.podOn(ctx, app, node); return err })
	}
}

func template(app string, policy corev1.RestartPolicy, annotations map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}, Annotations: annotations},
		Spec:       corev1.PodSpec{RestartPolicy: policy, Containers: []corev1.Container{{Name: "c", Image: app + ":1"}}},
	}
}

// awaitSite waits until the site's two pods are ready, and are where they should be.
func (s *suite) awaitSite(t *testing.T, placed func(*corev1.Pod) bool) {
	t.Helper()
	eventually(t, 2*time.Minute, func() error {
		list, err := s.kubernetes.CoreV1().Pods(shop).List(t.Context(), metav1.ListOptions{LabelSelector: "app=site"})
		if err != nil {
			return err
		}
		ready, seen := 0, ""
		for i := range list.Items {
			p := &list.Items[i]
			seen += fmt.Sprintf(" %s on %s: %s;", p.Name, p.Spec.NodeName, p.Status.Phase)
			if p.DeletionTimestamp == nil && isReady(p) && placed(p) {
				ready++
			}
		}
		if ready != 2 {
			return fmt.Errorf("the site's pods:%s want two that are ready in their places", seen)
		}
		return nil
	})
}

// podOn is the ready pod of an app on a Node.
func (s *suite) podOn(ctx context.Context, app, node string) (*corev1.Pod, error) {
	list, err := s.kubernetes.CoreV1().Pods(shop).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app, FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, err
	}
	if len(list.Items) != 1 || !isReady(&list.Items[0]) {
		return nil, fmt.Errorf("%d pods of %s are on Node %s, want one that is ready", len(list.Items), app, node)
	}
	return &list.Items[0], nil
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// awaitOperation waits until an operation is in a phase and says something.
func (s *suite) awaitOperation(t *testing.T, name string, phase v1alpha1.OperationPhase, says ...string) {
	t.Helper()
	eventually(t, 2*time.Minute, func() error {
		now, err := s.operator.IchorV1alpha1().TalosOperations().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, want := range says {
			if !strings.Contains(now.Status.Message, want) {
				return fmt.Errorf("operation %s is %s, and doesn't say %q: %s", name, now.Status.Phase, want, now.Status.Message)
			}
		}
		if now.Status.Phase != phase {
			return fmt.Errorf("operation %s is %s, want %s: %s", name, now.Status.Phase, phase, now.Status.Message)
		}
		return nil
	})
}

// patch merges a text into an object.
func (s *suite) patch(t *testing.T, send func(context.Context, []byte) error, format string, values ...any) {
	t.Helper()
	if err := send(t.Context(), fmt.Appendf(nil, format, values...)); err != nil {
		t.Fatal(err)
	}
}
