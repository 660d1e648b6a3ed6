// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"maesh.dev/ichor/test/hollow/kubernetes/kubelet/pod"
)

// watchSeconds is the shortest life of a watch; the longest is twice this, as for a real kubelet.
// Source: Kubernetes, staging/src/k8s.io/client-go/tools/cache/reflector.go, defaultMinWatchTimeout.
const watchSeconds = 5 * 60

// runner runs the pods of a node: one watch, one goroutine, and a timer only while a pod waits for something.
type runner struct {
	client kubernetes.Interface
	node   string
	host   pod.Host
	// failed is told why pods aren't watched or reported; the same reason again isn't news.
	failed func(error)

	pods map[types.UID]*corev1.Pod
}

// startPods runs the node's pods until ctx is done, as the node. Its connection is the kubelet's, whose client bounds each
// call and would end a watch.
func (k *Kubelet) startPods(ctx context.Context, group *sync.WaitGroup) {
	logger, complaint := k.options.Logger, ""
	failed := func(err error) {
		if text := err.Error(); text != complaint && ctx.Err() == nil {
			complaint = text
			logger.Warn("run pods", "node", k.options.NodeName, "error", err)
		}
	}

	client, err := kubernetes.NewForConfigAndClient(k.connection.Config, &http.Client{Transport: k.connection.HTTP.Transport})
	if err != nil {
		failed(err)

		return
	}

	r := &runner{
		client: client, node: k.options.NodeName, failed: failed,
		host: pod.Host{Address: k.options.Address, Network: k.options.PodNetwork, Boot: k.options.Facts.BootID},
	}

	group.Go(func() { r.run(ctx) })
}

// run follows the node's pods until ctx is done. What ends a watch is no failure of a pod.
func (r *runner) run(ctx context.Context) {
	pause := retryFirst

	for ctx.Err() == nil {
		watching, err := r.open(ctx)
		if err == nil {
			pause = retryFirst
			r.follow(ctx, watching)
			watching.Stop()

			continue
		}

		r.failed(err)

		timer := time.NewTimer(pause)

		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}

		pause = min(2*pause, retryLongest)
	}
}

// open lists the node's pods and watches them from there on. The Node authorizer lets a node ask for no others.
func (r *runner) open(ctx context.Context) (watch.Interface, error) {
	mine := fields.OneTermEqualSelector("spec.nodeName", r.node).String()

	listing, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()

	list, err := r.client.CoreV1().Pods(metav1.NamespaceAll).List(listing, metav1.ListOptions{FieldSelector: mine})
	if err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", r.node, err)
	}

	r.pods = map[types.UID]*corev1.Pod{}
	for i := range list.Items {
		r.pods[list.Items[i].UID] = &list.Items[i]
	}

	seconds := int64(watchSeconds + rand.IntN(watchSeconds))

	watching, err := r.client.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{
		FieldSelector: mine, ResourceVersion: list.ResourceVersion, TimeoutSeconds: &seconds, AllowWatchBookmarks: true,
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods of node %s: %w", r.node, err)
	}

	return watching, nil
}

// follow does what pods need, at each change and each time that one waits for, until the watch ends.
func (r *runner) follow(ctx context.Context, watching watch.Interface) {
	for {
		var due <-chan time.Time

		timer := time.NewTimer(0)
		timer.Stop()

		if again := r.round(ctx); !again.IsZero() {
			timer.Reset(max(time.Until(again), look))
			due = timer.C
		}

		select {
		case <-ctx.Done():
			timer.Stop()

			return
		case <-due:
		case event, open := <-watching.ResultChan():
			timer.Stop()

			if !open || !r.take(event) {
				return
			}
		}
	}
}

// look is the least time between two rounds of which none is due to a change.
const look = 50 * time.Millisecond

// take notes a change; false ends the watch.
func (r *runner) take(event watch.Event) bool {
	changed, isPod := event.Object.(*corev1.Pod)

	switch {
	case event.Type == watch.Bookmark:
	case !isPod:
		return false
	case event.Type == watch.Deleted:
		delete(r.pods, changed.UID)
	default:
		r.pods[changed.UID] = changed
	}

	return true
}

// round does what there is to do now, and returns when there is something next.
func (r *runner) round(ctx context.Context) (again time.Time) {
	soonest := func(at time.Time) {
		if !at.IsZero() && (again.IsZero() || at.Before(again)) {
			again = at
		}
	}

	for uid, current := range r.pods {
		step := pod.Next(current, r.host, time.Now())
		soonest(step.Again)

		if step.Status == nil && !step.Remove {
			continue
		}

		err := r.do(ctx, current, step)

		switch {
		case ctx.Err() != nil:
			return time.Time{}
		case apierrors.IsNotFound(err):
			delete(r.pods, uid)
		case apierrors.IsConflict(err):
			// A newer one is on its way.
			soonest(time.Now().Add(retryFirst))
		case err != nil:
			r.failed(err)
			soonest(time.Now().Add(retryLongest))
		case step.Remove:
			// Its end comes as an event; until then, nothing is left to do.
			delete(r.pods, uid)
		default:
			soonest(pod.Next(r.pods[uid], r.host, time.Now()).Again)
		}
	}

	return again
}

// do reports a pod's status, or ends it.
func (r *runner) do(ctx context.Context, current *corev1.Pod, step pod.Step) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()

	api := r.client.CoreV1().Pods(current.Namespace)

	if step.Remove {
		now := int64(0)

		err := api.Delete(ctx, current.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &current.UID}})
		if err != nil {
			return fmt.Errorf("delete pod %s/%s of node %s: %w", current.Namespace, current.Name, r.node, err)
		}

		return nil
	}

	reported := current.DeepCopy()
	reported.Status = *step.Status

	updated, err := api.UpdateStatus(ctx, reported, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("report status of pod %s/%s of node %s: %w", current.Namespace, current.Name, r.node, err)
	}

	r.pods[current.UID] = updated

	return nil
}
