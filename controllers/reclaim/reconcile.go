// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	// inspectFor is how long a machine that can't be looked at is tried, from the creation of its reclaim.
	inspectFor = time.Hour
	// resetFor is how long a machine may take from when it was to be told to wipe itself until it answers in maintenance
	// mode: leaving etcd takes up to five minutes, the firmware of a large server a quarter of an hour.
	resetFor = 45 * time.Minute
	// resendAfter is when a machine that goes on as if it was told nothing is told again.
	resendAfter = 30 * time.Second
	// lookAgain and lookSoon are between two looks.
	lookAgain = 10 * time.Second
	lookSoon  = 2 * time.Second
	// visitTimeout bounds one look, and saveTimeout the writing of what was found.
	visitTimeout = 2 * time.Minute
	saveTimeout  = 15 * time.Second
)

// visit is one look at one reclaim: the object as it was read, and as it is to be.
type visit struct {
	*Controller
	was, r  *v1alpha1.MachineReclaim
	address netip.Addr
}

// Reconcile looks once at a reclaim, and says when to look again.
func (c *Controller) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	cached, err := c.reclaims.Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read reclaim %s: %w", name, err)
	}
	if over(cached) || cached.DeletionTimestamp != nil {
		c.forget(cached.UID)
		return 0, nil
	}
	v := &visit{Controller: c, was: cached, r: cached.DeepCopy()}
	v.r.Status.ObservedGeneration = v.r.Generation
	if v.address, err = netip.ParseAddr(v.r.Spec.Address); err != nil {
		v.end(v1alpha1.ReclaimRefused, "spec.address is no IP address")
		return 0, v.save(ctx)
	}
	looking, cancel := context.WithTimeout(ctx, visitTimeout)
	defer cancel()
	if v.r.Status.Phase == v1alpha1.ReclaimResetting {
		after, err = v.follow(looking)
	} else {
		after, err = v.inspect(looking)
	}
	if err != nil {
		return 0, err
	}
	return after, v.save(ctx)
}

// save writes the status if it is another one, and tells of a phase that was reached. It fails if the object has moved on
// since it was read.
func (v *visit) save(ctx context.Context) error {
	if equality.Semantic.DeepEqual(v.was.Status, v.r.Status) {
		return nil
	}
	return v.write(ctx)
}

// write is save that fails on an old copy even where nothing is to be written: what comes next is fenced by it.
func (v *visit) write(ctx context.Context) error {
	// What was found out is kept, also if the controller is being ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	written, err := v.Client.IchorV1alpha1().MachineReclaims().UpdateStatus(ctx, v.r, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write the status of reclaim %s: %w", v.r.Name, err)
	}
	if phase := written.Status.Phase; phase != v.was.Status.Phase {
		phasesReached.WithLabelValues(string(phase)).Inc()
		kind := corev1.EventTypeNormal
		if phase == v1alpha1.ReclaimRefused || phase == v1alpha1.ReclaimFailed || phase == v1alpha1.ReclaimResetting {
			kind = corev1.EventTypeWarning // data is lost, or somebody has to look
		}
		v.Recorder.Event(written, kind, string(phase), written.Status.Message)
	}
	v.was, v.r = written, written.DeepCopy()
	return nil
}

// wait says what keeps the reclaim from going on, unless that has lasted for too long.
func (v *visit) wait(format string, arguments ...any) {
	v.r.Status.Message = fmt.Sprintf(format, arguments...)
	if since := v.r.CreationTimestamp.Time; v.r.Status.Phase != v1alpha1.ReclaimResetting && v.Clock.Since(since) > inspectFor {
		v.end(v1alpha1.ReclaimFailed, fmt.Sprintf("the machine could not be looked at for %s, and nothing was done to it; make another reclaim when it can: %s", inspectFor, v.r.Status.Message))
	}
}

// end is final.
func (v *visit) end(phase v1alpha1.ReclaimPhase, message string) {
	v.r.Status.Phase, v.r.Status.Message = phase, message
	complete, failed := metav1.ConditionFalse, metav1.ConditionTrue
	if phase == v1alpha1.ReclaimSucceeded {
		complete, failed = metav1.ConditionTrue, metav1.ConditionFalse
	}
	v.set(v1alpha1.ConditionComplete, complete, string(phase), message)
	v.set(v1alpha1.ConditionFailed, failed, string(phase), message)
	v.forget(v.r.UID)
}

func (v *visit) set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&v.r.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: v.r.Generation,
		LastTransitionTime: metav1.NewTime(v.Clock.Now().Truncate(time.Second)),
	})
}

// intendedAt is when the machine was to be told to wipe itself: the condition Complete is False from then on.
func (v *visit) intendedAt() time.Time {
	if condition := meta.FindStatusCondition(v.r.Status.Conditions, v1alpha1.ConditionComplete); condition != nil {
		return condition.LastTransitionTime.Time
	}
	return v.r.CreationTimestamp.Time
}
