// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/kube"
)

func (c *Controller) enqueueMachine(object any) {
	if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.queue.Add(name)
	}
}

// settleRunning is how long changes of what a machine runs are gathered before it is looked at.
const settleRunning = 500 * time.Millisecond

// RunsAnother brings a look at a machine that runs another configuration than is known. One that was sent its configuration
// and is waited for is looked at at once.
func (c *Controller) RunsAnother(name string) {
	wait := settleRunning
	if m, err := c.machines.Get(name); err == nil && isBeingConfigured(m) {
		wait = 0
	}
	c.queue.AddAfter(name, wait)
}

// enqueueChanged leaves out updates of nothing but conditions: they are this controller's own, or not about what it does,
// and a condition whose words change with every look would have the next look follow at once.
func (c *Controller) enqueueChanged(before, now any) {
	was, ok := before.(*v1alpha1.TalosMachine)
	is, alsoOK := now.(*v1alpha1.TalosMachine)
	if ok && alsoOK && c.gaveUpPlace(was, is) {
		c.enqueueNext(is)
	}
	if ok && alsoOK && settled(is) && !settled(was) {
		c.enqueueNextLive(is)
	}
	if !ok || !alsoOK || was.ResourceVersion == is.ResourceVersion || !onlyConditions(was, is) {
		c.enqueueMachine(now)
	}
}

// onlyConditions tells whether two versions of a machine differ in conditions only.
func onlyConditions(was, is *v1alpha1.TalosMachine) bool {
	a, b := was.Status, is.Status
	a.Conditions, b.Conditions = nil, nil
	return was.UID == is.UID && was.DeletionTimestamp.Equal(is.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(was.Spec, is.Spec) && equality.Semantic.DeepEqual(a, b) &&
		equality.Semantic.DeepEqual(was.Annotations, is.Annotations) && equality.Semantic.DeepEqual(was.Labels, is.Labels) &&
		equality.Semantic.DeepEqual(was.Finalizers, is.Finalizers)
}

// enqueueGone finishes a machine whose object went, and calls who waits for its place.
func (c *Controller) enqueueGone(object any) {
	c.enqueueMachine(object)
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	if m, ok := object.(*v1alpha1.TalosMachine); ok && c.gaveUpPlace(m, nil) {
		c.enqueueNext(m)
	}
}

// enqueueClusterChanged leaves out updates of what no machine waits for: a cluster's status counts its machines, so it
// changes with each of them.
func (c *Controller) enqueueClusterChanged(before, now any) {
	was, ok := before.(*v1alpha1.TalosCluster)
	is, alsoOK := now.(*v1alpha1.TalosCluster)
	if !ok || !alsoOK || was.ResourceVersion == is.ResourceVersion || concernsMachines(was, is) {
		c.enqueueCluster(now)
	}
	if ok && alsoOK && was.UID == is.UID && was.Generation != is.Generation {
		// What its machines should have may be something else now.
		c.enqueueWhere(func(m *v1alpha1.TalosMachine) bool {
			return m.Spec.ClusterRef.Name == is.Name && m.Spec.ApprovalState == v1alpha1.ApprovalApproved
		})
	}
}

// concernsMachines tells whether two versions of a cluster differ in what a machine's next step depends on.
func concernsMachines(was, is *v1alpha1.TalosCluster) bool {
	healthy := func(c *v1alpha1.TalosCluster) bool {
		return meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionEtcdHealthy)
	}
	return was.UID != is.UID || !was.DeletionTimestamp.Equal(is.DeletionTimestamp) || healthy(was) != healthy(is) ||
		was.Status.SecretsBundleHash != is.Status.SecretsBundleHash || operationOn(was) != operationOn(is) ||
		!equality.Semantic.DeepEqual(was.Spec, is.Spec) ||
		!equality.Semantic.DeepEqual(was.Status.EtcdMembers, is.Status.EtcdMembers) ||
		!equality.Semantic.DeepEqual(was.Status.ControlPlaneSlots, is.Status.ControlPlaneSlots)
}

// enqueueCluster looks again at the cluster's machines that wait for something.
func (c *Controller) enqueueCluster(object any) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	c.enqueueWhere(func(m *v1alpha1.TalosMachine) bool {
		return m.Spec.ClusterRef.Name == name && m.Spec.ApprovalState == v1alpha1.ApprovalApproved &&
			!(isTrue(m, v1alpha1.ConditionReady) && isTrue(m, v1alpha1.ConditionConfigApplied))
	})
}

// enqueueNodeChanged leaves out updates of a Node that say nothing about a machine: heartbeats, and what Kubernetes'
// controllers note on it.
func (c *Controller) enqueueNodeChanged(before, now any) {
	was, ok := before.(*corev1.Node)
	is, alsoOK := now.(*corev1.Node)
	if !ok || !alsoOK || was.ResourceVersion == is.ResourceVersion || !kube.SameMachine(was, is) {
		c.enqueueNode(now)
	}
}

// enqueueNode looks again at the machine that a Node is of.
func (c *Controller) enqueueNode(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	node, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	c.enqueueWhere(func(m *v1alpha1.TalosMachine) bool {
		return m.Spec.ApprovalState == v1alpha1.ApprovalApproved &&
			(m.Status.NodeName == node.Name || m.Status.NodeName == "" && (m.Spec.Hostname == node.Name || m.Status.Hostname == node.Name))
	})
}

func (c *Controller) enqueueWhere(concerned func(*v1alpha1.TalosMachine) bool) {
	machines, err := c.machines.List(labels.Everything())
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("list machines: %w", err))
		return
	}
	for _, m := range machines {
		if concerned(m) {
			c.queue.Add(m.Name)
		}
	}
}
