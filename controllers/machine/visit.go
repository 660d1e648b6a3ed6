// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// How long until a machine is looked at again without an event.
const (
	// pollFast is for a machine on its way, unless so many are that looksPerSecond takes longer.
	pollFast = 2 * time.Second
	// pollTook is for a running machine that took a changed configuration a moment ago.
	pollTook = 250 * time.Millisecond
	// pollWaiting is for a machine that waits for something that others do.
	pollWaiting = 5 * time.Second
	// pollSlow is for a machine that waits for a person, or doesn't answer.
	pollSlow = 30 * time.Second
	// pollRefused is for a machine that refused its configuration, which it will do again.
	pollRefused = 5 * time.Minute
	// pollReady is for a machine that is Ready.
	pollReady = time.Minute
)

// looksPerSecond bounds the looks at all machines together that are on their way between their configuration and their
// Node, or take up a changed one. A look takes some milliseconds of CPU here and on the machine. Nobody waits for it: the
// Node brings the next look by itself, and so does the watch of what the machine runs.
const looksPerSecond = 20

// visit is one look at one machine: the object as it was read, and as it is to be.
type visit struct {
	*Controller
	was, m *v1alpha1.TalosMachine
	// cluster is nil until it was found.
	cluster *v1alpha1.TalosCluster
	// running is the configuration that the machine runs, once it was read. It holds secrets.
	running []byte
	events  []event
	now     time.Time
	// after is when to look again.
	after time.Duration
	// took is true if a running machine took a changed configuration: it holds a place until it is seen to be well with it.
	took bool
	// told is true once the machine was told something, whose outcome isn't written down yet.
	told bool
}

// maxConflicts is how often the outcome of what a machine was told is written anew on the object's newest version.
const maxConflicts = 5

type event struct{ kind, reason, message string }

func (c *Controller) visit(cached *v1alpha1.TalosMachine) *visit {
	v := &visit{Controller: c, was: cached, m: cached.DeepCopy(), now: c.Clock.Now()}
	v.m.Status.ObservedGeneration = v.m.Generation
	return v
}

// paced is when to look again, with regard to how many others are on their way.
func (v *visit) paced() time.Duration {
	if v.took {
		return pollTook
	}
	if v.after == 0 || !moves(v.m, v.now) {
		return v.after
	}
	all, err := v.machines.List(labels.Everything())
	if err != nil {
		return v.after
	}
	moving := 0
	for _, m := range all {
		if moves(m, v.now) {
			moving++
		}
	}
	return max(v.after, time.Duration(moving)*time.Second/looksPerSecond)
}

// moves tells whether a machine is expected to be something else soon, by what it was sent.
func moves(m *v1alpha1.TalosMachine, now time.Time) bool {
	return onItsWay(m, now) || isBeingConfigured(m)
}

// tell announces an event; it is sent once the status that it goes with is written, so once per transition.
func (v *visit) tell(kind, reason, format string, arguments ...any) {
	v.events = append(v.events, event{kind, reason, fmt.Sprintf(format, arguments...)})
}

// save writes the status if it means something else than before. The write fails if the object has moved on since it was
// read, so whatever is decided on top of it was decided on the object as it is. What became of something that the machine
// was told is no decision: it is written on the newest version.
func (v *visit) save(ctx context.Context) error {
	if equality.Semantic.DeepEqual(v.was.Status, v.m.Status) {
		return nil
	}
	api := v.Client.IchorV1alpha1().TalosMachines()
	written, err := api.UpdateStatus(ctx, v.m, metav1.UpdateOptions{})
	for tries := 0; apierrors.IsConflict(err) && v.told && tries < maxConflicts; tries++ {
		newest, getErr := api.Get(ctx, v.m.Name, metav1.GetOptions{})
		if getErr != nil || newest.UID != v.m.UID {
			break
		}
		carryOutcome(v.was, v.m, newest)
		written, err = api.UpdateStatus(ctx, newest, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write the status of machine %s: %w", v.m.Name, err)
	}
	v.was, v.m, v.told = written, written.DeepCopy(), false
	for _, each := range v.events {
		v.Recorder.Event(written, each.kind, each.reason, each.message)
	}
	v.events = nil
	return nil
}

// carryOutcome copies what this controller alone writes, and what the outcome is in, to a newer version of the object. The
// versions that a machine is to have are an operation's as well: only a change of them is carried over.
func carryOutcome(was, from, to *v1alpha1.TalosMachine) {
	status := from.DeepCopy().Status
	to.Status.Provisioning, to.Status.Config = status.Provisioning, status.Config
	if !equality.Semantic.DeepEqual(was.Status.SettledVersions, status.SettledVersions) {
		to.Status.SettledVersions = status.SettledVersions
	}
	to.Status.Phase, to.Status.Stage, to.Status.Inventory = status.Phase, status.Stage, status.Inventory
	for _, condition := range status.Conditions {
		if condition.Type == v1alpha1.ConditionIdentityResolved {
			continue // it is the search's
		}
		meta.RemoveStatusCondition(&to.Status.Conditions, condition.Type)
		meta.SetStatusCondition(&to.Status.Conditions, condition)
	}
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
		v.backOn()
		lastSeen.WithLabelValues(v.m.Name).Set(float64(v.now.Unix()))
		if newsworthy {
			v.tell(corev1.EventTypeNormal, v1alpha1.ReasonAnswers, "%s", message)
		}
		setTrue(v.m, v1alpha1.ConditionReachable, v1alpha1.ReasonAnswers, message)
		return
	}
	if v.silentOnPurpose() {
		return
	}
	if newsworthy {
		v.tell(corev1.EventTypeWarning, v1alpha1.ReasonUnreachable, "%s", message)
	}
	setFalse(v.m, v1alpha1.ConditionReachable, v1alpha1.ReasonUnreachable, message)
}
