// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/controllers/operation/gates"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// passGates waits until the machine may go down, by Ichor's own gates.
func (v *visit) passGates(ctx context.Context) (outcome, error) {
	if still := v.kind().still; still != nil {
		if came, err := still(v, ctx); err != nil || came.needless || came.failed {
			return came, err
		}
	}
	if why, err := v.ownGates(ctx); err != nil || why != "" {
		return outcome{message: why}, err
	}
	return v.opened()
}

// askGates waits for the gates that a person gave the operation. All are asked each time, so that the time of each counts
// from the beginning of the step.
func (v *visit) askGates(ctx context.Context) (outcome, error) {
	occasion := gates.Occasion{Operation: v.op.Name, UID: v.op.UID, Machine: v.m.Name, Attempt: v.op.Status.HandledResumeRequests}
	var closed, late []string
	for _, gate := range v.op.Spec.Gates {
		found, err := v.Gates.Check(ctx, gate, occasion)
		switch {
		case err != nil:
			closed = append(closed, err.Error())
		case found.State == gates.Refused:
			return failed("%s", found.Message)
		case found.State == gates.Waiting && v.lasted(v.record) > gateTimeout(&gate):
			late = append(late, fmt.Sprintf("not open after %s: %s", gateTimeout(&gate), found.Message))
		case found.State == gates.Waiting:
			closed = append(closed, found.Message)
		}
	}
	switch {
	case len(late) > 0:
		return failed("%s", strings.Join(late, "; "))
	case len(closed) > 0:
		return waiting("%s", strings.Join(closed, "; "))
	default:
		return v.opened()
	}
}

// opened is the outcome of gates that are open: they may have taken longer than a window was.
func (v *visit) opened() (outcome, error) {
	if !v.inWindow() {
		return outcome{early: true, message: v.op.Status.Message}, nil
	}
	return done("the gates are open")
}

func gateTimeout(gate *v1alpha1.OperationGate) time.Duration {
	if gate.Timeout != nil {
		return gate.Timeout.Duration
	}
	return 30 * time.Minute
}

// ownGates says why the machine may not go down now. The machines are listed from the API itself: what their controller
// wrote before it tells one to leave is seen, and it sees the operation's claim.
func (v *visit) ownGates(ctx context.Context) (string, error) {
	if v.m.Spec.Locked {
		return "spec.locked is true; set it to false, or cancel the operation", nil
	}
	listing, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	listed, err := v.Client.IchorV1alpha1().TalosMachines().List(listing, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list machines: %w", err)
	}
	var peers []*v1alpha1.TalosMachine
	for i := range listed.Items {
		if other := &listed.Items[i]; other.UID != v.m.UID && other.Spec.ClusterRef.Name == v.cluster.Name {
			peers = append(peers, other)
		}
	}
	if why := disturbed(v.m, peers); why != "" {
		return why, nil
	}
	if v.m.Spec.Role != v1alpha1.RoleControlPlane || v.kind().stays {
		if condition := meta.FindStatusCondition(v.cluster.Status.Conditions, v1alpha1.ConditionEtcdHealthy); condition == nil || condition.Status != metav1.ConditionTrue {
			return "etcd isn't known to be healthy", nil
		}
		return "", nil
	}
	return v.quorumWithout(ctx, peers)
}

// disturbed names a machine because of which this one may not go down now. A worker waits for control planes too: with
// them, its pods find no new place.
func disturbed(m *v1alpha1.TalosMachine, peers []*v1alpha1.TalosMachine) string {
	for _, other := range peers {
		if other.Spec.Role != v1alpha1.RoleControlPlane || other.Spec.ApprovalState != v1alpha1.ApprovalApproved {
			continue
		}
		reset := meta.FindStatusCondition(other.Status.Conditions, v1alpha1.ConditionReset)
		switch applied := meta.FindStatusCondition(other.Status.Conditions, v1alpha1.ConditionConfigApplied); {
		case other.DeletionTimestamp != nil && reset != nil && reset.Status != metav1.ConditionFalse:
			return fmt.Sprintf("control plane %s is being removed", other.Name)
		case applied != nil && applied.Status == metav1.ConditionFalse && applied.Reason == v1alpha1.ReasonApplying:
			return fmt.Sprintf("control plane %s is being configured", other.Name)
		case !isReady(other) && isConfigured(other) && other.DeletionTimestamp == nil:
			return fmt.Sprintf("control plane %s is not Ready: %s", other.Name, notReady(other))
		}
	}
	return ""
}

func isConfigured(m *v1alpha1.TalosMachine) bool {
	return m.Spec.Origin == v1alpha1.MachineAdopted || m.Status.Provisioning != nil && m.Status.Provisioning.IntendedAt != nil
}

func notReady(m *v1alpha1.TalosMachine) string {
	if condition := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); condition != nil {
		return condition.Message
	}
	return "it was not looked at yet"
}

// answer is what a control plane says of etcd.
type answer struct {
	status talos.EtcdStatus
	// members and alarms are only asked of the machine itself.
	members []talos.EtcdMember
	alarms  []talos.EtcdAlarm
	err     error
}

// quorumWithout asks every control plane itself whether etcd is well enough for one of them to go down.
func (v *visit) quorumWithout(ctx context.Context, peers []*v1alpha1.TalosMachine) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	asked := []*v1alpha1.TalosMachine{v.m}
	for _, other := range peers {
		if other.Spec.Role == v1alpha1.RoleControlPlane && other.Spec.ApprovalState == v1alpha1.ApprovalApproved && isConfigured(other) {
			asked = append(asked, other)
		}
	}
	answers := make([]answer, len(asked))
	var running sync.WaitGroup
	for i, m := range asked {
		running.Go(func() { answers[i] = v.askEtcd(ctx, m, i == 0) })
	}
	running.Wait()
	return judgeEtcd(answers[0], answers[1:]), nil
}

func (v *visit) askEtcd(ctx context.Context, m *v1alpha1.TalosMachine, whole bool) answer {
	var a answer
	node, err := v.reach(ctx, m)
	if err != nil {
		a.err = err
		return a
	}
	defer node.Close() //nolint:errcheck // it was read from only
	if a.status, a.err = node.EtcdStatus(ctx); a.err != nil || !whole {
		return a
	}
	if a.members, a.err = node.EtcdMembers(ctx); a.err != nil {
		return a
	}
	a.alarms, a.err = node.EtcdAlarms(ctx)
	return a
}

// judgeEtcd says why a control plane may not go down: every voter answers, none is a learner, there is no alarm, and
// without this one the rest has a quorum. The only member of all may go: there is no quorum to keep.
func judgeEtcd(own answer, others []answer) string {
	if own.err != nil {
		return fmt.Sprintf("its etcd doesn't answer: %s", own.err)
	}
	if len(own.alarms) > 0 {
		return fmt.Sprintf("etcd has the alarm %s on member %x; mend that first", own.alarms[0].Kind, own.alarms[0].MemberID)
	}
	well := map[uint64]bool{}
	for _, each := range append([]answer{own}, others...) {
		if each.err == nil && each.status.KnowsLeader() && len(each.status.Errors) == 0 && !each.status.Learner {
			well[each.status.MemberID] = true
		}
	}
	if !slices.ContainsFunc(own.members, func(member talos.EtcdMember) bool { return member.ID == own.status.MemberID }) {
		return fmt.Sprintf("etcd lists no member %x, which is the machine's own", own.status.MemberID)
	}
	voters, healthy := 0, 0
	for _, member := range own.members {
		if member.Learner {
			return fmt.Sprintf("etcd member %s is a learner; nothing goes down until it votes", member.Hostname)
		}
		voters++
		if !well[member.ID] {
			return fmt.Sprintf("etcd member %s (%x) isn't healthy, or is on no machine that is known; nothing goes down until it is, or is removed", member.Hostname, member.ID)
		}
		if member.ID != own.status.MemberID {
			healthy++
		}
	}
	if quorum := voters/2 + 1; voters > 1 && healthy < quorum {
		return fmt.Sprintf("without it etcd has %d healthy voters of %d, and needs %d for a quorum; add a control plane first", healthy, voters, quorum)
	}
	return ""
}
