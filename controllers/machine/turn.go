// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// stuckAfter is how long a worker on its way holds one of the places of spec.apply.maxParallel. A control plane holds
// its place until it has joined or is gone: it may be a learner of etcd.
const stuckAfter = 30 * time.Minute

// turns lets control planes be provisioned one at a time and workers a few at a time. What other machines are doing is
// read from their objects; claims of this process that the cache doesn't show yet are remembered here.
type turns struct {
	mu     sync.Mutex
	claims map[types.UID]v1alpha1.MachineRole
	// live are the machines that are being configured while they run.
	live map[types.UID]bool
	// leaving is the control plane that is about to be told to wipe itself.
	leaving types.UID
}

func newTurns() *turns {
	return &turns{claims: map[types.UID]v1alpha1.MachineRole{}, live: map[types.UID]bool{}}
}

// claimLeave asks for a control plane's turn to leave. It lasts until it is released: by then the machine's object shows
// that it is leaving, or it isn't.
func (t *turns) claimLeave(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leaving != "" {
		return false
	}
	t.leaving = uid
	return true
}

// releaseLeave gives the turn of claimLeave back.
func (t *turns) releaseLeave(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leaving == uid {
		t.leaving = ""
	}
}

// claim asks for a machine's turn. all are the machines as the cache shows them. A claim lasts until it is released or
// the cache shows the machine on its way.
func (t *turns) claim(m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster, all []*v1alpha1.TalosMachine, now time.Time) (ok bool, reason, message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(all)
	if reason, message := waitFor(m, cluster, t.busy(m, all, now)); reason != "" {
		return false, reason, message
	}
	t.claims[m.UID] = m.Spec.Role
	return true, "", ""
}

// release gives a turn back that wasn't used.
func (t *turns) release(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.claims, uid)
}

// forget drops claims that the objects themselves show by now, and those of machines that are gone.
func (t *turns) forget(all []*v1alpha1.TalosMachine) {
	pending := map[types.UID]bool{}
	for _, other := range all {
		if !sent(other) {
			pending[other.UID] = true
		}
	}
	for uid := range t.claims {
		if !pending[uid] {
			delete(t.claims, uid)
		}
	}
}

// busy are the names of the other machines of the same cluster and role that are on their way.
func (t *turns) busy(m *v1alpha1.TalosMachine, all []*v1alpha1.TalosMachine, now time.Time) []string {
	var names []string
	for _, other := range all {
		if other.UID == m.UID || other.Spec.Role != m.Spec.Role || other.Spec.ClusterRef.Name != m.Spec.ClusterRef.Name {
			continue
		}
		_, claimed := t.claims[other.UID]
		if claimed || onItsWay(other, now) {
			names = append(names, other.Name)
		}
	}
	slices.Sort(names)
	return names
}

// onItsWay tells whether a machine was sent a configuration and has not joined yet.
func onItsWay(m *v1alpha1.TalosMachine, now time.Time) bool {
	if m.Spec.Origin == v1alpha1.MachineAdopted || m.Spec.ApprovalState != v1alpha1.ApprovalApproved || !sent(m) || isTrue(m, v1alpha1.ConditionJoined) {
		return false
	}
	return m.Spec.Role == v1alpha1.RoleControlPlane || now.Sub(m.Status.Provisioning.IntendedAt.Time) < stuckAfter
}

// waitFor says what a machine has to wait for; an empty reason means that it may go on.
func waitFor(m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster, busy []string) (reason, message string) {
	if m.Spec.Role != v1alpha1.RoleControlPlane {
		if limit := maxParallel(cluster); len(busy) >= limit {
			return v1alpha1.ReasonWaitingForTurn, fmt.Sprintf("%d workers are being provisioned, as many as spec.apply.maxParallel of cluster %s allows", len(busy), cluster.Name)
		}
		return "", ""
	}
	if len(busy) > 0 {
		return v1alpha1.ReasonWaitingForTurn, fmt.Sprintf("control planes join one at a time, and %s is on its way; remove it if it doesn't come", strings.Join(busy, ", "))
	}
	for _, member := range cluster.Status.EtcdMembers {
		if member.Learner && member.Machine != m.Name {
			return v1alpha1.ReasonEtcdLearner, fmt.Sprintf("etcd member %s (%s) is still a learner; the next control plane joins when it votes", member.ID, member.Hostname)
		}
	}
	health := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionEtcdHealthy)
	if health == nil {
		return reasonEtcdUnhealthy, fmt.Sprintf("it isn't known yet whether the etcd of cluster %s is healthy", cluster.Name)
	}
	if health.Status != metav1.ConditionTrue {
		return reasonEtcdUnhealthy, fmt.Sprintf("no control plane joins while etcd of cluster %s is not healthy: %s", cluster.Name, health.Message)
	}
	return "", ""
}

// conflict names an approved machine of the same cluster that stands before this one and has the same hostname or static
// address. Of two such machines the one that was approved later waits.
func conflict(m *v1alpha1.TalosMachine, all []*v1alpha1.TalosMachine) string {
	for _, other := range all {
		if other.UID == m.UID || other.Spec.ApprovalState != v1alpha1.ApprovalApproved || other.Spec.ClusterRef.Name != m.Spec.ClusterRef.Name || !before(other, m) {
			continue
		}
		if hostname := m.Spec.Hostname; hostname != "" && (other.Spec.Hostname == hostname || other.Spec.Hostname == "" && other.Status.NodeName == hostname) {
			return fmt.Sprintf("machine %s has, or was approved earlier with, hostname %s; approve this one again with another, or remove one of them", other.Name, hostname)
		}
		for _, address := range declared(m) {
			if slices.Contains(declared(other), address) {
				return fmt.Sprintf("machine %s has, or was approved earlier with, address %s; approve this one again with another, or remove one of them", other.Name, address)
			}
		}
	}
	return ""
}

// before orders machines: one that has its configuration, or may have it, stands before one that hasn't; two that haven't
// stand by the time of their approval, then by name. The time moves when a machine is approved again, so it says nothing
// about one that has been sent its configuration. Of two that have, each stands before the other: neither changes until a
// person has decided.
func before(a, b *v1alpha1.TalosMachine) bool {
	if has(a) || has(b) {
		return has(a)
	}
	at, bt := approvedAt(a), approvedAt(b)
	if at.Equal(bt) {
		return a.Name < b.Name
	}
	return at.Before(bt)
}

// has tells whether a machine has a configuration, or may have one.
func has(m *v1alpha1.TalosMachine) bool {
	return m.Spec.Origin == v1alpha1.MachineAdopted || sent(m)
}

func approvedAt(m *v1alpha1.TalosMachine) time.Time {
	if m.Spec.Approval == nil || m.Spec.Approval.At == nil {
		return time.Time{}
	}
	return m.Spec.Approval.At.Time
}
