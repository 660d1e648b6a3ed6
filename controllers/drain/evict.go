// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	// evictTimeout bounds one eviction. Where a PodDisruptionBudget isn't judged yet, the API asks to come back in ten
	// seconds and the client library would wait for that: there are other pods meanwhile.
	// Source: Kubernetes: pkg/registry/core/pod/storage/eviction.go.
	evictTimeout = 5 * time.Second
	// maxQuote is how many characters of somebody else's words are passed on.
	maxQuote = 300
)

// evictions evicts pods, and knows the budgets of the namespaces that it has looked at in a pass.
type evictions struct {
	Drainer
	// past deletes pods, whatever their budgets say.
	past    bool
	budgets map[string]budgets
}

type budgets struct {
	all []policyv1.PodDisruptionBudget
	err error
}

// evict asks one pod to go: that very one, not another that has its name by now. It is neither a blocker nor gone if it
// was told to end. An error is one that concerns all pods.
func (e *evictions) evict(ctx context.Context, pod *corev1.Pod) (blocker *Blocker, gone bool, err error) {
	asking, cancel := context.WithTimeout(ctx, evictTimeout)
	defer cancel()
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	if e.past {
		err = e.Client.CoreV1().Pods(pod.Namespace).Delete(asking, pod.Name, options)
	} else {
		err = e.Client.PolicyV1().Evictions(pod.Namespace).Evict(asking, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &options,
		})
	}
	held := func(reason Reason, message string) (*Blocker, bool, error) {
		return &Blocker{Reason: reason, Name: podName(pod), Message: message}, false, nil
	}
	switch {
	case err == nil:
		return nil, false, nil
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil, true, nil
	case ctx.Err() != nil:
		return nil, false, fmt.Errorf("evict %s: %w", podName(pod), ctx.Err())
	case apierrors.IsTooManyRequests(err), errors.Is(err, context.DeadlineExceeded), isOverlap(err):
		if why := e.holding(ctx, pod); why != "" {
			return held(Budget, why)
		}
		return held(Denied, "isn't evicted yet: "+quote(err))
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return held(Denied, "is in a namespace that is being deleted, which will delete it")
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot create resource"), apierrors.IsUnauthorized(err):
		return nil, false, fmt.Errorf("ichor-controller may not evict %s; are the roles of this version installed? %w", podName(pod), err)
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
		// The API has answered: a webhook, a policy.
		return held(Denied, "isn't evicted: "+quote(err))
	}
	return nil, false, fmt.Errorf("evict %s: %w", podName(pod), err)
}

// isOverlap tells whether a pod has several budgets, which the API refuses to evict.
// Source: Kubernetes: pkg/registry/core/pod/storage/eviction.go.
func isOverlap(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "more than one PodDisruptionBudget")
}

// holding says what the budgets of a pod allow, with their numbers; it is empty where none holds it.
func (e *evictions) holding(ctx context.Context, pod *corev1.Pod) string {
	known, found := e.budgets[pod.Namespace]
	if !found {
		known = e.budgetsOf(ctx, pod.Namespace)
		e.budgets[pod.Namespace] = known
	}
	if known.err != nil {
		return "is held by a PodDisruptionBudget (which one isn't known: " + quote(known.err) + ")"
	}
	var texts []string
	for i := range known.all {
		selector, err := metav1.LabelSelectorAsSelector(known.all[i].Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			texts = append(texts, numbers(&known.all[i]))
		}
	}
	switch {
	case len(texts) > 1:
		return "has several PodDisruptionBudgets, which the API doesn't evict; leave it one of " + some(texts)
	case len(texts) == 1:
		return "is held by " + texts[0]
	}
	return ""
}

func (e *evictions) budgetsOf(ctx context.Context, namespace string) (out budgets) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	options := metav1.ListOptions{Limit: page}
	for {
		list, err := e.Client.PolicyV1().PodDisruptionBudgets(namespace).List(ctx, options)
		if err != nil {
			return budgets{err: fmt.Errorf("list PodDisruptionBudgets in namespace %s: %w", namespace, err)}
		}
		out.all = append(out.all, list.Items...)
		if options.Continue = list.Continue; options.Continue == "" {
			return out
		}
	}
}

// numbers are what a budget says, and what to do where it says no for ever.
func numbers(budget *policyv1.PodDisruptionBudget) string {
	status := budget.Status
	text := "PodDisruptionBudget " + budget.Namespace + "/" + budget.Name
	switch {
	case status.ObservedGeneration < budget.Generation:
		return text + ", which Kubernetes has yet to judge"
	case status.ExpectedPods == 0:
		return text + ", which sees no pods of a known controller"
	}
	text += fmt.Sprintf(" (allows %d disruptions: %d of %d pods are healthy, %d must be)",
		status.DisruptionsAllowed, status.CurrentHealthy, status.ExpectedPods, status.DesiredHealthy)
	if status.DesiredHealthy >= status.ExpectedPods {
		text += "; it never allows one: add a replica, or change the budget"
	}
	return text
}

// quote shortens words that aren't ours.
func quote(err error) string {
	text := []rune(err.Error())
	if len(text) > maxQuote {
		return string(text[:maxQuote-1]) + "…"
	}
	return string(text)
}
