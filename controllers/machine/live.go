// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// claimLive asks for a running machine's turn to be configured anew, and says what it has to wait for otherwise. Control
// planes go one at a time, and each only while the others are Ready and etcd is healthy; workers as many at a time as
// spec.apply.maxParallel says. A machine keeps its place until it is Ready with its new configuration, so that a
// configuration that does harm doesn't reach them all. What others are doing is read from their objects; claims of this
// process that the cache doesn't show yet are remembered here. The turn lasts until it is released.
func (t *turns) claimLive(m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster, all []*v1alpha1.TalosMachine, now time.Time) (why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(all)
	t.forgetLive(all)
	if m.Spec.Role == v1alpha1.RoleControlPlane {
		why = t.controlPlaneWaits(m, cluster, all, now)
	} else {
		why = t.workerWaits(m, cluster, all, now)
	}
	if why == "" {
		t.live[m.UID] = true
	}
	return why
}

// forgetLive drops the claims of machines that are gone.
func (t *turns) forgetLive(all []*v1alpha1.TalosMachine) {
	for uid := range t.live {
		if !slices.ContainsFunc(all, func(m *v1alpha1.TalosMachine) bool { return m.UID == uid }) {
			delete(t.live, uid)
		}
	}
}

// releaseLive gives the turn of claimLive back.
func (t *turns) releaseLive(m *v1alpha1.TalosMachine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, m.UID)
}

func (t *turns) controlPlaneWaits(m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster, all []*v1alpha1.TalosMachine, now time.Time) string {
	if busy := t.busy(m, all, now); len(busy) > 0 {
		return fmt.Sprintf("control planes are configured one at a time, and %s is on its way", strings.Join(busy, ", "))
	}
	for _, other := range peers(m, all) {
		if t.live[other.UID] || isBeingConfigured(other) {
			return fmt.Sprintf("control planes are configured one at a time, and %s is being configured", other.Name)
		}
		// One that isn't Ready itself may need its new configuration to become it.
		if isTrue(m, v1alpha1.ConditionReady) && !isTrue(other, v1alpha1.ConditionReady) {
			return fmt.Sprintf("control plane %s is not Ready; the others keep their configuration until it is, or is removed", other.Name)
		}
	}
	health := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionEtcdHealthy)
	if isTrue(m, v1alpha1.ConditionReady) && (health == nil || health.Status != metav1.ConditionTrue) {
		return fmt.Sprintf("etcd of cluster %s is not healthy; control planes keep their configuration until it is", cluster.Name)
	}
	return ""
}

// askLive is claimLive without claiming.
func (t *turns) askLive(m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster, all []*v1alpha1.TalosMachine, now time.Time) (why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.workerWaits(m, cluster, all, now)
}

func (t *turns) workerWaits(m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster, all []*v1alpha1.TalosMachine, now time.Time) string {
	busy := 0
	for _, other := range peers(m, all) {
		if t.live[other.UID] || isBeingConfigured(other) || recoversFrom(other, now) {
			busy++
		}
	}
	if limit := maxParallel(cluster); busy >= limit {
		// Always the same words: a thousand machines that wait would be written anew each time another one is through.
		return fmt.Sprintf("%d workers are being configured, or are not Ready since they were, as many as spec.apply.maxParallel of cluster %s allows", limit, cluster.Name)
	}
	return ""
}

// settled tells whether a machine is Ready with what it should have: it takes no place of those that are configured.
func settled(m *v1alpha1.TalosMachine) bool {
	return isTrue(m, v1alpha1.ConditionReady) && isTrue(m, v1alpha1.ConditionConfigApplied)
}

// enqueueNextLive calls as many of the machines that wait to be configured anew as there are places, now that one gave its
// place up. One whose turn it turns out not to be waits on.
func (c *Controller) enqueueNextLive(done *v1alpha1.TalosMachine) {
	cluster, err := c.clusters.Get(done.Spec.ClusterRef.Name)
	if err != nil {
		return // without its cluster no machine goes on
	}
	all, err := c.machines.List(labels.Everything())
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("list machines: %w", err))
		return
	}
	for _, name := range c.turns.nextLive(done, cluster, all, c.Clock.Now()) {
		c.queue.Add(name)
	}
}

// nextLive are the machines of the same role whose turn it is, sorted.
func (t *turns) nextLive(done *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster, all []*v1alpha1.TalosMachine, now time.Time) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	places := 1
	if done.Spec.Role == v1alpha1.RoleWorker {
		places = maxParallel(cluster)
	}
	var waiting []string
	for _, m := range peers(done, all) {
		condition := find(m, v1alpha1.ConditionConfigApplied)
		switch {
		case t.live[m.UID] || isBeingConfigured(m) || recoversFrom(m, now):
			places--
		case condition != nil && condition.Reason == v1alpha1.ReasonWaitingForTurn && isTrue(m, v1alpha1.ConditionJoined):
			waiting = append(waiting, m.Name)
		}
	}
	slices.Sort(waiting)
	return waiting[:min(max(places, 0), len(waiting))]
}

// peers are the other approved machines of the same cluster and role that have a configuration.
func peers(m *v1alpha1.TalosMachine, all []*v1alpha1.TalosMachine) []*v1alpha1.TalosMachine {
	var others []*v1alpha1.TalosMachine
	for _, other := range all {
		if other.UID != m.UID && other.Spec.Role == m.Spec.Role && other.Spec.ClusterRef.Name == m.Spec.ClusterRef.Name &&
			other.Spec.ApprovalState == v1alpha1.ApprovalApproved && has(other) && other.DeletionTimestamp == nil {
			others = append(others, other)
		}
	}
	return others
}

// isBeingConfigured tells whether a running machine has been, or is being, sent a configuration that it isn't seen to run.
func isBeingConfigured(m *v1alpha1.TalosMachine) bool {
	condition := find(m, v1alpha1.ConditionConfigApplied)
	return condition != nil && condition.Status == metav1.ConditionFalse && condition.Reason == v1alpha1.ReasonApplying && isTrue(m, v1alpha1.ConditionJoined)
}

// recoversFrom tells whether a machine took a configuration not long ago and isn't Ready since.
func recoversFrom(m *v1alpha1.TalosMachine, now time.Time) bool {
	condition := find(m, v1alpha1.ConditionConfigApplied)
	return condition != nil && condition.Status == metav1.ConditionTrue && now.Sub(condition.LastTransitionTime.Time) < stuckAfter &&
		isTrue(m, v1alpha1.ConditionJoined) && !isTrue(m, v1alpha1.ConditionReady)
}
