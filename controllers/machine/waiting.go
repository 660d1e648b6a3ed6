// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Hundreds of workers may wait for their turn. Looking at each again and again would take more than provisioning those
// whose turn it is, so they are left alone, and the next ones are called when a place gets free.

// pollTurn is for a worker that waits for its turn: it is called when a place gets free, so this is for places that get
// free without an event, by the clock (stuckAfter).
const pollTurn = time.Minute

// maxParallel is how many workers of a cluster may be on their way at a time.
func maxParallel(cluster *v1alpha1.TalosCluster) int {
	return int(cmp.Or(cluster.Spec.Apply.MaxParallel, v1alpha1.DefaultMaxParallel))
}

// waitsForTurn tells whether the machine is a worker whose turn hasn't come, and says so; nothing is asked of the machine.
func (v *visit) waitsForTurn() (bool, error) {
	if !queues(v.m) {
		return false, nil
	}
	all, err := v.machines.List(labels.Everything())
	if err != nil {
		return false, fmt.Errorf("list machines: %w", err)
	}
	reason, message := v.turns.ask(v.m, v.cluster, all, v.now)
	if reason == "" {
		return false, nil
	}
	v.block(reason, message, pollTurn)
	return true, nil
}

// queues tells whether a machine is a worker that nothing was sent to yet.
func queues(m *v1alpha1.TalosMachine) bool {
	return m.Spec.ApprovalState == v1alpha1.ApprovalApproved && m.DeletionTimestamp == nil && m.Spec.Role == v1alpha1.RoleWorker &&
		m.Spec.Origin != v1alpha1.MachineAdopted && !sent(m)
}

// ask is claim without claiming.
func (t *turns) ask(m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster, all []*v1alpha1.TalosMachine, now time.Time) (reason, message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(all)
	return waitFor(m, cluster, t.busy(m, all, now))
}

// gaveUpPlace tells whether a worker held one of the places, or was in line for one, and doesn't any more.
func (c *Controller) gaveUpPlace(was, is *v1alpha1.TalosMachine) bool {
	now := c.Clock.Now()
	return was.Spec.Role == v1alpha1.RoleWorker && onItsWay(was, now) && (is == nil || is.UID != was.UID || !onItsWay(is, now))
}

// enqueueNext calls as many of the workers that wait for their turn as there are places, in the order of their approval.
// One whose turn it turns out not to be costs little. Gone is a machine that isn't in line itself.
func (c *Controller) enqueueNext(gone *v1alpha1.TalosMachine) {
	cluster, err := c.clusters.Get(gone.Spec.ClusterRef.Name)
	if err != nil {
		return // without its cluster no machine goes on
	}
	all, err := c.machines.List(labels.Everything())
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("list machines: %w", err))
		return
	}
	for _, m := range c.turns.next(gone, cluster, all, c.Clock.Now()) {
		c.queue.Add(m.Name)
	}
}

// next are the machines whose turn it is, besides one.
func (t *turns) next(besides *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster, all []*v1alpha1.TalosMachine, now time.Time) []*v1alpha1.TalosMachine {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(all)
	places := maxParallel(cluster)
	var waiting []*v1alpha1.TalosMachine
	for _, m := range all {
		if m.Spec.Role != v1alpha1.RoleWorker || m.Spec.ClusterRef.Name != cluster.Name {
			continue
		}
		_, claimed := t.claims[m.UID]
		switch {
		case claimed || onItsWay(m, now):
			places--
		case m.UID != besides.UID && queues(m) && waitingForTurn(m):
			waiting = append(waiting, m)
		}
	}
	slices.SortFunc(waiting, func(a, b *v1alpha1.TalosMachine) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	return waiting[:min(max(places, 0), len(waiting))]
}

// waitingForTurn tells whether nothing but its turn is known to keep a machine.
func waitingForTurn(m *v1alpha1.TalosMachine) bool {
	condition := find(m, v1alpha1.ConditionConfigApplied)
	return condition == nil || condition.Reason == v1alpha1.ReasonWaitingForTurn
}
