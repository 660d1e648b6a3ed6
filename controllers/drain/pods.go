// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	kubectldrain "k8s.io/kubectl/pkg/drain"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// page is how many objects one request lists.
const page = 500

// leaving are the pods of a Node that don't stay.
type leaving struct {
	// others are everybody's.
	others []corev1.Pod
	// own are Ichor's, which go last.
	own []corev1.Pod
	// left names pods that stay and that a person should know of.
	left []string
}

// sortPods lists the pods of a Node and decides what becomes of each. The decision is kubectl's, with --ignore-daemonsets,
// --delete-emptydir-data and --force, but that
//   - pods without a controller stay, unless the machine doesn't come back: nothing would make them anew elsewhere, and
//     their kubelet starts them again;
//   - pods that have ended stay: nothing runs in them, and their logs are of use.
func (d Drainer) sortPods(ctx context.Context, node string, options Options) (leaving, error) {
	var out leaving
	stay := func(when func(*corev1.Pod) bool, why string) kubectldrain.PodFilter {
		return func(pod corev1.Pod) kubectldrain.PodDeleteStatus {
			if !when(&pod) {
				return kubectldrain.MakePodDeleteStatusOkay()
			}
			if why != "" {
				out.left = append(out.left, podName(&pod)+", "+why)
			}
			return kubectldrain.MakePodDeleteStatusSkip()
		}
	}
	helper := &kubectldrain.Helper{
		Ctx: ctx, Client: d.Client, Force: true, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true, GracePeriodSeconds: -1, ChunkSize: page,
		SkipWaitForDeleteTimeoutSeconds: seconds(options.Spec.SkipWaitForDeleteTimeout),
		AdditionalFilters: []kubectldrain.PodFilter{
			stay(hasEnded, ""),
			stay(func(pod *corev1.Pod) bool { return !options.Gone && metav1.GetControllerOf(pod) == nil }, "which has no controller to make it anew elsewhere"),
		},
		Out: io.Discard, ErrOut: io.Discard,
	}
	list, errs := helper.GetPodsForDeletion(node)
	if len(errs) > 0 {
		return out, fmt.Errorf("look at the pods of Node %s: %w", node, errors.Join(errs...))
	}
	for _, pod := range list.Pods() {
		if pod.Namespace == v1alpha1.SystemNamespace {
			out.own = append(out.own, pod)
		} else {
			out.others = append(out.others, pod)
		}
	}
	return out, nil
}

// podsOf lists all pods of a Node.
func (d Drainer) podsOf(ctx context.Context, node string) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(), Limit: page}
	for {
		list, err := d.Client.CoreV1().Pods("").List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list the pods of Node %s: %w", node, err)
		}
		pods = append(pods, list.Items...)
		if options.Continue = list.Continue; options.Continue == "" {
			return pods, nil
		}
	}
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func podName(pod *corev1.Pod) string { return "pod " + pod.Namespace + "/" + pod.Name }

// ending is a pod that was told to end, and since when.
func ending(pod *corev1.Pod) (since time.Time, is bool) {
	if pod.DeletionTimestamp == nil {
		return time.Time{}, false
	}
	// The timestamp is when its time is over.
	since = pod.DeletionTimestamp.Time
	if grace := pod.DeletionGracePeriodSeconds; grace != nil {
		since = since.Add(-time.Duration(*grace) * time.Second)
	}
	return since, true
}

// seconds are whole ones, as kubectl counts; less than one is one, as none would wait for all.
func seconds(d *metav1.Duration) int {
	if d == nil {
		return 0
	}
	return int(math.Ceil(d.Seconds()))
}
