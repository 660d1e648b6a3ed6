// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// run is one look at one operation: the object as it was read, and as it is to be.
type run struct {
	*Controller
	was, op *v1alpha1.TalosOperation
	cluster *v1alpha1.TalosCluster
	now     metav1.Time
	// after is when to look again.
	after  time.Duration
	events []event
}

type event struct{ kind, reason, message string }

// save writes the status if it means something else than before. The write fails if the object has moved on since it was
// read, so whatever is done on top of it was decided on the object as it is.
func (r *run) save(ctx context.Context) error {
	r.op.Status.ObservedGeneration = r.op.Generation
	if equality.Semantic.DeepEqual(r.was.Status, r.op.Status) {
		return nil
	}
	if sameButWords(&r.was.Status, &r.op.Status) && r.wroteLately(r.op.UID) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	written, err := r.Client.IchorV1alpha1().TalosOperations().UpdateStatus(ctx, r.op, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write the status of operation %s: %w", r.op.Name, err)
	}
	if r.was.Status.Phase != written.Status.Phase {
		kind, _ := kindOf(&written.Spec)
		phasesReached.WithLabelValues(kind.name, string(written.Status.Phase)).Inc()
	}
	r.was, r.op = written, written.DeepCopy()
	r.noteWritten(written)
	for _, each := range r.events {
		r.Recorder.Event(written, each.kind, each.reason, each.message)
	}
	r.events = nil
	return nil
}

// wordsEvery is how often new words alone are written.
const wordsEvery = 5 * time.Second

// sameButWords tells whether two statuses differ in nothing but what they tell people.
func sameButWords(a, b *v1alpha1.TalosOperationStatus) bool {
	mute := func(status *v1alpha1.TalosOperationStatus) *v1alpha1.TalosOperationStatus {
		status = status.DeepCopy()
		status.Message = ""
		for i := range status.Conditions {
			status.Conditions[i].Message = ""
		}
		for i := range status.Machines {
			status.Machines[i].Message = ""
		}
		return status
	}
	return equality.Semantic.DeepEqual(mute(a), mute(b))
}

func (c *Controller) wroteLately(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, known := c.written[uid]
	return known && c.Clock.Since(at) < wordsEvery
}

func (c *Controller) noteWritten(operation *v1alpha1.TalosOperation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if isOver(operation) {
		delete(c.written, operation.UID)
		return
	}
	c.written[operation.UID] = c.Clock.Now()
}

// tell announces an event; it is sent once the status that it goes with is written, so once per transition.
func (r *run) tell(kind, reason, format string, arguments ...any) {
	r.events = append(r.events, event{kind, reason, fmt.Sprintf(format, arguments...)})
}

// enter moves the operation to a phase.
func (r *run) enter(phase v1alpha1.OperationPhase, format string, arguments ...any) {
	status, message := &r.op.Status, fmt.Sprintf(format, arguments...)
	if status.Phase != phase {
		kind := corev1.EventTypeNormal
		if phase == v1alpha1.OperationPaused || phase == v1alpha1.OperationFailed {
			kind = corev1.EventTypeWarning
		}
		r.tell(kind, string(phase), "%s", message)
	}
	status.Phase, status.Message = phase, message
	r.condition(v1alpha1.ConditionProgressing, phase == v1alpha1.OperationRunning || phase == v1alpha1.OperationWaiting, string(phase), message)
	r.condition(conditionSuspended, r.op.Spec.Suspend && !over(phase), reasonOf(r.op.Spec.Suspend), "spec.suspend")
	if over(phase) {
		status.FinishedAt, status.Current = &r.now, ""
		r.condition(v1alpha1.ConditionComplete, phase == v1alpha1.OperationSucceeded, string(phase), message)
		r.condition(v1alpha1.ConditionFailed, phase == v1alpha1.OperationFailed, string(phase), message)
	}
}

// The conditions that only operations have.
const (
	conditionPlanned   = "Planned"
	conditionSuspended = "Suspended"
)

func reasonOf(suspended bool) string {
	if suspended {
		return v1alpha1.ReasonSuspended
	}
	return "NotSuspended"
}

func (r *run) condition(kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&r.op.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: r.op.Generation, LastTransitionTime: r.now,
	})
}

// machine is the record of a machine, which is made if there is none.
func (r *run) machine(name string) *v1alpha1.OperationMachineStatus {
	status := &r.op.Status
	at := slices.IndexFunc(status.Machines, func(m v1alpha1.OperationMachineStatus) bool { return m.Name == name })
	if at < 0 {
		status.Machines = append(status.Machines, v1alpha1.OperationMachineStatus{Name: name})
		at = len(status.Machines) - 1
	}
	return &status.Machines[at]
}

// mark writes into the journal how far a step is.
func (r *run) mark(m *v1alpha1.OperationMachineStatus, step string, state v1alpha1.OperationStepState, message string) {
	if m.Step != step || m.State != state {
		stepsTaken.WithLabelValues(r.kind().name, step, string(state)).Inc()
		m.At = &r.now
	}
	m.Step, m.State, m.Message = step, state, message
}

func over(phase v1alpha1.OperationPhase) bool {
	return phase == v1alpha1.OperationSucceeded || phase == v1alpha1.OperationFailed || phase == v1alpha1.OperationCancelled
}

func isOver(operation *v1alpha1.TalosOperation) bool { return over(operation.Status.Phase) }

func isReady(m *v1alpha1.TalosMachine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReady)
}
