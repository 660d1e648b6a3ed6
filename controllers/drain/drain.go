// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	// passTimeout bounds one pass. What it didn't come to is the next one's.
	passTimeout = 45 * time.Second
	// late is how long after its time a pod should be gone: a kubelet needs some seconds.
	late = time.Minute
)

// Options are how a Node is drained.
type Options struct {
	// Spec is the operation's. Its timeout is the caller's business.
	Spec v1alpha1.Drain
	// Gone says that the machine doesn't come back: pods without a controller are evicted, too.
	Gone bool
}

// Drain makes one pass over a Node that was cordoned: it evicts what is to be evicted, and says what is waited for. A Node
// that is gone is Done.
//
// An error means that nothing could be found out this time: a caller tries again, as for what is waited for.
func (d Drainer) Drain(ctx context.Context, node string, options Options) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	found, err := d.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Result{Done: true}, nil
	case err != nil:
		return Result{}, fmt.Errorf("read Node %s: %w", node, err)
	case !found.Spec.Unschedulable:
		return Result{Blockers: []Blocker{{
			Reason: Schedulable, Name: "Node " + node, Message: "isn't cordoned any more: somebody uncordoned it, and evicted pods would come back; `kubectl cordon " + node + "`",
		}}}, nil
	}
	alone, err := d.alone(ctx, node)
	if err != nil {
		return Result{}, err
	}
	if alone {
		return Result{Done: true, Left: []string{"every pod: the cluster has no other Node"}}, nil
	}
	return d.pass(ctx, node, options)
}

// pass evicts everybody's pods; when they are gone, Ichor's own; and when those are gone, it waits for volumes.
func (d Drainer) pass(ctx context.Context, node string, options Options) (Result, error) {
	pods, err := d.sortPods(ctx, node, options)
	if err != nil {
		return Result{}, err
	}
	result := Result{Left: pods.left}
	going := pods.others
	if len(going) == 0 {
		var left []string
		if going, left, err = d.movable(ctx, node, pods.own); err != nil {
			return Result{}, err
		}
		result.Left = append(result.Left, left...)
	}
	if len(going) > 0 {
		result.Blockers, result.Asked, err = d.evictAll(ctx, going, options.Spec.DisableEviction)
	} else {
		result.Blockers, err = d.attached(ctx, node)
	}
	if err != nil {
		return Result{}, err
	}
	result.Blockers = sorted(result.Blockers)
	// Where all pods turned out to be gone, the next pass looks at what comes after them.
	result.Done = len(result.Blockers) == 0 && len(going) == 0
	return result, nil
}

// evictAll asks every pod to go that wasn't asked yet. A pod that holds things up keeps none of the others.
func (d Drainer) evictAll(ctx context.Context, pods []corev1.Pod, past bool) (blockers []Blocker, asked int, err error) {
	e := &evictions{Drainer: d, past: past, budgets: map[string]budgets{}}
	// Another one first each time: where requests take long, the pass ends before all were asked.
	first := int(d.now().Unix() % int64(len(pods)))
	for i := range pods {
		pod := &pods[(first+i)%len(pods)]
		if since, is := ending(pod); is {
			blockers = append(blockers, d.ends(pod, since))
			continue
		}
		blocker, gone, err := e.evict(ctx, pod)
		switch {
		case ctx.Err() != nil && i > 0:
			return append(blockers, Blocker{Reason: Denied, Name: podName(pod), Message: "wasn't asked yet: the API is slow"}), asked, nil
		case err != nil:
			return nil, asked, err
		case gone:
			continue
		}
		if blocker == nil {
			asked++
			ends := d.ends(pod, d.now())
			blocker = &ends
		}
		blockers = append(blockers, *blocker)
	}
	return blockers, asked, nil
}

// ends is a pod that was told to end.
func (d Drainer) ends(pod *corev1.Pod, since time.Time) Blocker {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if pod.DeletionGracePeriodSeconds != nil {
		grace = *pod.DeletionGracePeriodSeconds
	} else if pod.Spec.TerminationGracePeriodSeconds != nil {
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	took, allowed := d.now().Sub(since).Round(time.Second), time.Duration(grace)*time.Second
	message := fmt.Sprintf("has been terminating for %s of its %s", took, allowed)
	switch {
	case len(pod.Finalizers) > 0:
		message += ", with the finalizers " + some(pod.Finalizers)
	case took > allowed+late:
		message += "; is its kubelet there? spec.drain.skipWaitForDeleteTimeout leaves such pods out"
	}
	return Blocker{Reason: Ending, Name: podName(pod), Message: message, Since: since}
}
