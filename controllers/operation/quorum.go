// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// answer is what a control plane says of etcd.
type answer struct {
	status  talos.EtcdStatus
	members []talos.EtcdMember
	alarms  []talos.EtcdAlarm
	err     error
}

// well tells whether the member takes part in etcd's decisions.
func (a answer) well() bool {
	return a.err == nil && a.status.KnowsLeader() && len(a.status.Errors) == 0 && !a.status.Learner
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
		running.Go(func() { answers[i] = v.askEtcd(ctx, m) })
	}
	running.Wait()
	return judgeEtcd(answers[0], answers[1:], v.kind().mends), nil
}

func (v *visit) askEtcd(ctx context.Context, m *v1alpha1.TalosMachine) answer {
	var a answer
	node, err := v.reach(ctx, m)
	if err != nil {
		a.err = err
		return a
	}
	defer node.Close() //nolint:errcheck // it was read from only
	if a.status, a.err = node.EtcdStatus(ctx); a.err != nil {
		return a
	}
	if a.members, a.err = node.EtcdMembers(ctx); a.err != nil {
		return a
	}
	a.alarms, a.err = node.EtcdAlarms(ctx)
	return a
}

// judgeEtcd says why a control plane may not go down: every voter is well, none is a learner, there is no alarm, and
// without this one the rest has a quorum. The only member of all may go: there is no quorum to keep. Where going down may
// be what mends it (mends), its own member may be unwell: it isn't counted on, so nothing is lost with it.
func judgeEtcd(own answer, others []answer, mends bool) string {
	witness := own
	if own.err != nil {
		i := slices.IndexFunc(others, answer.well)
		if !mends || i < 0 {
			return fmt.Sprintf("its etcd doesn't answer: %s", own.err)
		}
		witness = others[i]
	}
	if len(witness.alarms) > 0 {
		return fmt.Sprintf("etcd has the alarm %s on member %x; mend that first", witness.alarms[0].Kind, witness.alarms[0].MemberID)
	}
	if own.err == nil && !slices.ContainsFunc(own.members, func(member talos.EtcdMember) bool { return member.ID == own.status.MemberID }) {
		return fmt.Sprintf("etcd lists no member %x, which is the machine's own", own.status.MemberID)
	}
	return judgeVoters(own, others, witness.members, mends)
}

func judgeVoters(own answer, others []answer, members []talos.EtcdMember, mends bool) string {
	well := map[uint64]bool{}
	for _, other := range others {
		if other.well() {
			well[other.status.MemberID] = true
		}
	}
	voters, unwell := 0, []talos.EtcdMember{}
	for _, member := range members {
		if member.Learner {
			return fmt.Sprintf("etcd member %s is a learner; nothing goes down until it votes", member.Hostname)
		}
		voters++
		itself := own.err == nil && member.ID == own.status.MemberID
		if !well[member.ID] && (!itself || !own.well()) {
			unwell = append(unwell, member)
		}
	}
	// One whose etcd doesn't say which member it is can only be the one that no other machine is.
	if mends && !own.well() && len(unwell) == 1 && (own.err != nil || unwell[0].ID == own.status.MemberID) {
		unwell = nil
	}
	if len(unwell) > 0 {
		return fmt.Sprintf("etcd member %s (%x) isn't healthy, or is on no machine that is known; nothing goes down until it is, or is removed", unwell[0].Hostname, unwell[0].ID)
	}
	if healthy, quorum := len(well), voters/2+1; voters > 1 && healthy < quorum {
		return fmt.Sprintf("without it etcd has %d healthy voters of %d, and needs %d for a quorum; add a control plane first", healthy, voters, quorum)
	}
	return ""
}

// etcdReader connects to who is asked for a snapshot: the machine itself, which is about to be well for the last time, or,
// where it may be unwell, another control plane whose etcd answers.
func (v *visit) etcdReader(ctx context.Context) (talos.ConfiguredNode, error) {
	node, err := v.readsEtcd(ctx, v.m)
	if err == nil || !v.kind().mends {
		return node, err
	}
	peers, listErr := v.peers(ctx)
	if listErr != nil {
		return nil, listErr
	}
	for _, other := range peers {
		if other.Spec.Role != v1alpha1.RoleControlPlane || !isReady(other) {
			continue
		}
		if node, otherErr := v.readsEtcd(ctx, other); otherErr == nil {
			return node, nil
		}
	}
	return nil, err
}

func (v *visit) readsEtcd(ctx context.Context, m *v1alpha1.TalosMachine) (talos.ConfiguredNode, error) {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	node, err := v.reach(ctx, m)
	if err != nil {
		return nil, err
	}
	if _, err := node.EtcdStatus(asking); err != nil {
		_ = node.Close() // it was read from only
		return nil, fmt.Errorf("etcd of %s doesn't answer: %w", m.Name, err)
	}
	return node, nil
}
