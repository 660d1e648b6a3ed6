// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/controllers/operation/gates"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	// pollStep is how long until a step that waits is tried again; an event may bring it sooner.
	pollStep = 2 * time.Second
	// pollQueued is how long until an operation that waits for another looks again; its end brings it sooner.
	pollQueued = 30 * time.Second
	// requestTimeout bounds one request to the API.
	requestTimeout = 15 * time.Second
	// maxMoves bounds the transitions in one look, so that other operations get their turn.
	maxMoves = 16
)

// Reconcile moves one operation on, as far as it goes without waiting, and says when to look again. It is read from the API
// itself: what is done to machines is never decided on an old copy.
func (c *Controller) Reconcile(ctx context.Context, name string) (time.Duration, error) {
	read, err := c.read(ctx, name)
	if apierrors.IsNotFound(err) {
		c.errands.drop(name)
		return 0, c.release(ctx, name)
	}
	if err != nil {
		return 0, err
	}
	r := &run{Controller: c, was: read, op: read.DeepCopy()}
	for range maxMoves {
		r.now, r.after = metav1.NewTime(c.Clock.Now().Truncate(time.Second)), 0
		before := r.was
		if err := r.move(ctx); err != nil {
			return 0, err
		}
		if err := r.save(ctx); err != nil {
			return 0, err
		}
		if isOver(r.op) {
			c.errands.drop(name)
			return 0, errors.Join(c.release(ctx, name), r.prune(ctx))
		}
		if r.after > 0 || r.was == before {
			return max(r.after, pollStep), nil
		}
	}
	return pollStep, nil
}

func (c *Controller) read(ctx context.Context, name string) (*v1alpha1.TalosOperation, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	operation, err := c.Client.IchorV1alpha1().TalosOperations().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read operation %s: %w", name, err)
	}
	return operation, nil
}

// move takes the next decision. It either changes the status, or sets after.
func (r *run) move(ctx context.Context) error {
	if isOver(r.op) {
		return nil
	}
	cluster, err := r.clusterOf(ctx)
	if apierrors.IsNotFound(err) {
		r.enter(v1alpha1.OperationFailed, "there is no TalosCluster %s", r.op.Spec.ClusterRef.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read cluster %s: %w", r.op.Spec.ClusterRef.Name, err)
	}
	r.cluster = cluster
	switch {
	case r.op.Status.Plan == nil:
		return r.plan(ctx)
	case r.op.Spec.Mode == v1alpha1.OperationModePlan:
		r.enter(v1alpha1.OperationSucceeded, "planned, as spec.mode says; nothing was done")
		return nil
	case r.op.Status.Current == "" && r.op.Status.Total > 0 && r.op.Status.Done == r.op.Status.Total:
		r.enter(v1alpha1.OperationSucceeded, "%d machines are done", r.op.Status.Done)
		return nil
	case r.cancelled() && r.op.Status.Current == "":
		r.enter(v1alpha1.OperationCancelled, "cancelled by %s", r.op.Spec.Control.By)
		return nil
	case r.suspended():
		r.enter(v1alpha1.OperationPaused, "suspended: set spec.suspend to false to go on")
		r.after = pollQueued
		return r.stepBack(ctx)
	case r.op.Status.Current == "" && !r.inWindow():
		return r.stepBack(ctx)
	}
	heldBy, err := r.claim(ctx)
	if err != nil {
		return err
	}
	if heldBy != "" {
		r.enter(v1alpha1.OperationQueued, "waits for operation %s: one at a time works on a cluster", heldBy)
		r.after = pollQueued
		return nil
	}
	return r.work(ctx)
}

// clusterOf is the operation's cluster. A plan is made on it as the API itself has it: an operation is often made in one go with
// what its cluster is to have, or with the cluster itself, and what is planned, or isn't there, is final.
func (r *run) clusterOf(ctx context.Context) (*v1alpha1.TalosCluster, error) {
	name := r.op.Spec.ClusterRef.Name
	if cluster, err := r.clusters.Get(name); r.op.Status.Plan != nil && !apierrors.IsNotFound(err) {
		return cluster, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return r.Client.IchorV1alpha1().TalosClusters().Get(ctx, name, metav1.GetOptions{})
}

// plan writes down what is to be done, before anything is.
func (r *run) plan(ctx context.Context) error {
	all, err := r.machines.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	p := &planning{operation: r.op, cluster: r.cluster, all: all, now: r.now}
	if gather := r.kind().gather; gather != nil {
		if err := gather(r, ctx, p); err != nil {
			return err
		}
	}
	plan := makePlan(p)
	r.op.Status.Plan, r.op.Status.Total = plan, int32(len(plan.Machines)) //nolint:gosec // there are thousands at most
	switch why := failedChecks(plan); {
	case why != "":
		r.enter(v1alpha1.OperationFailed, "%s", why)
	case len(plan.Machines) == 0:
		r.enter(v1alpha1.OperationSucceeded, "no machine has need of it; nothing was done")
	default:
		r.enter(v1alpha1.OperationPending, "planned: %d machines", len(plan.Machines))
	}
	r.condition(conditionPlanned, failedChecks(plan) == "", string(r.op.Status.Phase), r.op.Status.Message)
	return nil
}

func (r *run) cancelled() bool { return r.op.Spec.Control != nil && r.op.Spec.Control.CancelRequested }

// suspended tells whether no further machine may be begun. One that was begun is finished.
func (r *run) suspended() bool { return r.op.Spec.Suspend && r.op.Status.Current == "" }

// work moves the machine that is worked on, or begins the next one.
func (r *run) work(ctx context.Context) error {
	status := &r.op.Status
	if r.resumed() {
		return nil
	}
	if status.Current == "" {
		switch round, left := r.round(); {
		case len(left) > 0 && round.parallel > 1:
			return r.together(ctx, round, left)
		case len(left) > 0:
			r.begin(left[0])
			return nil
		}
		next := slices.IndexFunc(status.Plan.Machines, func(planned v1alpha1.PlannedMachine) bool { return !r.machine(planned.Name).Done })
		if next < 0 {
			return fmt.Errorf("operation %s counts %d of %d machines as done, and finds none that isn't", r.op.Name, status.Done, status.Total)
		}
		r.begin(status.Plan.Machines[next].Name)
		return nil
	}
	return r.step(ctx, r.machine(status.Current))
}

// inWindow tells whether a machine may be begun by the clock, and says so if not.
func (r *run) inWindow() bool {
	open, opens, err := gates.Open(r.op.Spec.Windows, r.Clock.Now())
	if err != nil {
		r.enter(v1alpha1.OperationPaused, "spec.windows: %s; cancel the operation and make another", err)
		r.after = pollQueued
		return false
	}
	if !open {
		r.enter(v1alpha1.OperationWaiting, "waits for its window, which opens at %s", opens.UTC().Format(time.RFC3339))
		r.after = min(max(opens.Sub(r.Clock.Now()), time.Second), pollQueued)
	}
	return open
}

// stepBack gives the cluster back while no machine is worked on and none may be begun, so that others can pass.
func (r *run) stepBack(ctx context.Context) error {
	if holder := r.cluster.Status.ActiveOperation; holder == nil || holder.UID != r.op.UID {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return r.giveBack(ctx, r.cluster.Name, func(holder *v1alpha1.ActiveOperation) (bool, error) { return holder.UID == r.op.UID, nil })
}

// begin begins a machine.
func (r *run) begin(name string) {
	r.op.Status.Current = name
	if r.op.Status.StartedAt == nil {
		r.op.Status.StartedAt = &r.now
	}
	if m := r.machine(name); m.StartedAt == nil {
		m.StartedAt = &r.now
	}
	r.enter(v1alpha1.OperationRunning, "%s: begins", name)
}

// resumed lets a step that failed be tried again, once for each request of a person.
func (r *run) resumed() bool {
	status, control := &r.op.Status, r.op.Spec.Control
	if control == nil || control.ResumeRequests <= status.HandledResumeRequests {
		return false
	}
	status.HandledResumeRequests = control.ResumeRequests
	for i := range status.Machines {
		if m := &status.Machines[i]; m.State == v1alpha1.StepFailed {
			r.mark(m, m.Step, v1alpha1.StepIntended, "resumed by "+control.By)
		}
	}
	if status.Current != "" {
		r.enter(v1alpha1.OperationRunning, "%s: resumed by %s", status.Current, control.By)
	}
	return true
}
