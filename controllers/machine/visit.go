// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// How long until a machine is looked at again without an event.
const (
	// pollFast is for a machine on its way.
	pollFast = 2 * time.Second
	// pollWaiting is for a machine that waits for something that others do.
	pollWaiting = 5 * time.Second
	// pollSlow is for a machine that waits for a person, or doesn't answer.
	pollSlow = 30 * time.Second
	// pollRefused is for a machine that refused its configuration, which it will do again.
	pollRefused = 5 * time.Minute
	// pollReady is for a machine that is Ready.
	pollReady = time.Minute
)

// visit is one look at one machine: the object as it was read, and as it is to be.
type visit struct {
	*Controller
	was, m *v1alpha1.TalosMachine
	// cluster is nil until it was found.
	cluster *v1alpha1.TalosCluster
	events  []event
	now     time.Time
	// after is when to look again.
	after time.Duration
}

type event struct{ kind, reason, message string }

func (c *Controller) visit(cached *v1alpha1.TalosMachine) *visit {
	v := &visit{Controller: c, was: cached, m: cached.DeepCopy(), now: c.Clock.Now()}
	v.m.Status.ObservedGeneration = v.m.Generation
	return v
}

// tell announces an event; it is sent once the status that it goes with is written, so once per transition.
func (v *visit) tell(kind, reason, format string, arguments ...any) {
	v.events = append(v.events, event{kind, reason, fmt.Sprintf(format, arguments...)})
}

// save writes the status if it means something else than before. The write fails if the object has moved on since it was
// read, so whatever is decided on top of it was decided on the object as it is.
func (v *visit) save(ctx context.Context) error {
	if equality.Semantic.DeepEqual(v.was.Status, v.m.Status) {
		return nil
	}
	written, err := v.Client.IchorV1alpha1().TalosMachines().UpdateStatus(ctx, v.m, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write the status of machine %s: %w", v.m.Name, err)
	}
	v.was, v.m = written, written.DeepCopy()
	for _, each := range v.events {
		v.Recorder.Event(written, each.kind, each.reason, each.message)
	}
	v.events = nil
	return nil
}

// timestamp is now with the precision that objects are stored with.
func (v *visit) timestamp() *metav1.Time {
	t := metav1.NewTime(v.Clock.Now().Truncate(time.Second))
	return &t
}

// block says why a machine can't be configured yet, and when to look again.
func (v *visit) block(reason, message string, after time.Duration) {
	setFalse(v.m, v1alpha1.ConditionConfigApplied, reason, message)
	setFalse(v.m, v1alpha1.ConditionReady, reason, message)
	v.after = after
}

// reachable moves the condition Reachable, with an event when it moves; but not for a machine on its way, whose reboots
// are no news.
func (v *visit) reachable(answers bool, message string) {
	was, known := isTrue(v.m, v1alpha1.ConditionReachable), find(v.m, v1alpha1.ConditionReachable) != nil
	newsworthy := known && was != answers && (v.m.Spec.Origin == v1alpha1.MachineAdopted || v.m.Status.Provisioning != nil && v.m.Status.Provisioning.ConvergedAt != nil)
	if answers {
		lastSeen.WithLabelValues(v.m.Name).Set(float64(v.now.Unix()))
		if newsworthy {
			v.tell(corev1.EventTypeNormal, v1alpha1.ReasonAnswers, "%s", message)
		}
		setTrue(v.m, v1alpha1.ConditionReachable, v1alpha1.ReasonAnswers, message)
		return
	}
	if newsworthy {
		v.tell(corev1.EventTypeWarning, v1alpha1.ReasonUnreachable, "%s", message)
	}
	setFalse(v.m, v1alpha1.ConditionReachable, v1alpha1.ReasonUnreachable, message)
}
