// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"errors"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

// start is when the tests happen: now, as kubectl's filter of pods that should be gone knows no other clock.
var start = time.Now().Truncate(time.Second)

// pod is one of a ReplicaSet on Node a.
func pod(namespace, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + "-" + name), Labels: map[string]string{"app": name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", Controller: ptr.To(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "a"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func bare(p *corev1.Pod) { p.OwnerReferences = nil }

func ofDaemonSet(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", Controller: ptr.To(true)}}
}

func static(p *corev1.Pod) {
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "a", Controller: ptr.To(true)}}
}

func ended(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

// told was told to end so long ago, with 30 s for that.
func told(ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		over := metav1.NewTime(start.Add(30*time.Second - ago))
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &over, ptr.To[int64](30)
	}
}

func claims(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
}

var daemonSet = &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent"}}

func attachment(volume, node string, change ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	a := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-" + volume + node},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "rbd.csi", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true},
	}
	for _, c := range change {
		c(a)
	}
	return a
}

func claim(namespace, name, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
}

func budget(namespace, app string, allowed, healthy, desired, expected int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "budget-" + app, Generation: 1},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(desired)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status: policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: 1, DisruptionsAllowed: allowed, CurrentHealthy: healthy, DesiredHealthy: desired, ExpectedPods: expected,
		},
	}
}

// cluster is one whose evictions do as the API's: they tell a pod to end, unless the test says otherwise of it.
type cluster struct {
	*kubefake.Clientset
	// refuses says for pods why they aren't evicted.
	refuses map[string]error
	// evicted and deleted are the names of pods that were asked, in order.
	evicted, deleted []string
	unchecked        []string
}

func newCluster(t *testing.T, there ...runtime.Object) *cluster {
	t.Helper()
	c := &cluster{Clientset: kubefake.NewClientset(there...), refuses: map[string]error{}}
	c.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		eviction := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		if err := c.refuses[eviction.Name]; err != nil {
			return true, nil, err
		}
		found, err := c.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), eviction.Namespace, eviction.Name)
		if err != nil {
			return true, nil, err
		}
		p := found.(*corev1.Pod).DeepCopy()
		if want := eviction.DeleteOptions.Preconditions; want == nil || want.UID == nil || *want.UID != p.UID {
			c.unchecked = append(c.unchecked, p.Name)
		}
		c.evicted = append(c.evicted, p.Name)
		told(0)(p)
		return true, nil, c.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), p, p.Namespace)
	})
	c.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.deleted = append(c.deleted, action.(clienttesting.DeleteAction).GetName())
		return false, nil, nil
	})
	t.Cleanup(func() {
		if len(c.unchecked) > 0 {
			t.Errorf("evicted by name alone, whoever has it by now: %v", c.unchecked)
		}
	})
	return c
}

func (c *cluster) drain(t *testing.T, options Options) Result {
	t.Helper()
	got, err := Drainer{Client: c, Clock: testclock.NewFakePassiveClock(start)}.Drain(t.Context(), "a", options)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// ends deletes all pods that were told to end, as a kubelet does.
func (c *cluster) ends(t *testing.T) {
	t.Helper()
	list, err := c.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		if p.DeletionTimestamp != nil {
			if err := c.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), p.Namespace, p.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// overBudget is what the API says where a budget holds a pod.
// Source: Kubernetes: pkg/registry/core/pod/storage/eviction.go.
func overBudget(name string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget " + name + " needs 2 healthy pods and has 2 currently",
	})
	return err
}

func mayNot(verb string) error {
	return apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New(`User "system:serviceaccount:ichor-system:ichor-controller" cannot `+verb+` resource "pods/eviction"`))
}

func many(n int) (all []runtime.Object) {
	for i := range n {
		all = append(all, pod("web", "p"+strconv.Itoa(i)))
	}
	return all
}
