// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"maesh.dev/ichor/pkg/kube"
)

// alone tells whether a Node is the only one of its cluster. Its pods could go nowhere, and the work would end with
// ichor-controller's.
func (d Drainer) alone(ctx context.Context, node string) (bool, error) {
	// Two are enough to know, but for Nodes that are being deleted.
	alone := true
	err := d.eachNode(ctx, 2, func(other *corev1.Node) bool {
		if other.Name != node && other.DeletionTimestamp == nil {
			alone = false
		}
		return alone
	})
	return alone, err
}

// movable sorts out which of Ichor's own pods another Node could take. Those that none could take stay: if they were
// evicted, nobody would be there to end what was begun, or nobody could write how far it is. That another Node has room
// isn't asked; what is evicted and finds none has a replica elsewhere, or a PodDisruptionBudget that says so.
func (d Drainer) movable(ctx context.Context, node string, own []corev1.Pod) (movable []corev1.Pod, left []string, err error) {
	if len(own) == 0 {
		return nil, nil, nil
	}
	taken := make([]bool, len(own))
	for i := range own {
		_, taken[i] = ending(&own[i]) // it is too late to keep
	}
	err = d.eachNode(ctx, page, func(other *corev1.Node) bool {
		for i := range own {
			taken[i] = taken[i] || other.Name != node && takes(ctx, other, &own[i])
		}
		return slices.Contains(taken, false)
	})
	if err != nil {
		return nil, nil, err
	}
	for i := range own {
		if taken[i] {
			movable = append(movable, own[i])
		} else {
			left = append(left, podName(&own[i])+", which no other Node takes")
		}
	}
	return movable, left, nil
}

// takes tells whether a Node would take a pod, by what the two say of each other.
func takes(ctx context.Context, node *corev1.Node, pod *corev1.Pod) bool {
	if ready, _ := kube.NodeReady(node); !ready || node.Spec.Unschedulable || node.DeletionTimestamp != nil {
		return false
	}
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !matches {
		return false
	}
	_, untolerated := schedulinghelpers.FindMatchingUntoleratedTaint(klog.FromContext(ctx), node.Spec.Taints, pod.Spec.Tolerations, func(taint *corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
	}, false)
	return !untolerated
}

// eachNode shows Nodes, until one is enough.
func (d Drainer) eachNode(ctx context.Context, at int64, show func(*corev1.Node) (more bool)) error {
	options := metav1.ListOptions{Limit: at}
	for {
		list, err := d.Client.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			return fmt.Errorf("list Nodes: %w", err)
		}
		for i := range list.Items {
			if !show(&list.Items[i]) {
				return nil
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}
