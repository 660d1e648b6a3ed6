// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// departure is how a machine leaves its cluster.
type departure struct {
	// graceful leaves it to the machine to leave etcd, which its own etcd has to work for.
	graceful bool
	// peer removes the member instead, if there is one.
	peer   talos.ConfiguredNode
	member *talos.EtcdMember
	// userDisks are the paths of user disks that are wiped besides.
	userDisks []string
}

func (d *departure) close() {
	if d.peer != nil {
		_ = d.peer.Close()
	}
}

// plan finds out how a machine can leave, or why it can't now. A control plane whose own etcd doesn't answer, or doesn't
// vote, is taken out of etcd by another one.
func (v *visit) plan(ctx context.Context, found *sighting) (d *departure, why string, err error) {
	if v.m.Spec.Role != v1alpha1.RoleControlPlane {
		// Gracefully, the machine would drain its Node itself, and wait for that.
		return &departure{graceful: v.undrained() == ""}, "", nil
	}
	all, err := v.machines.List(labels.Everything())
	if err != nil {
		return nil, "", fmt.Errorf("list machines: %w", err)
	}
	d = &departure{graceful: true}
	members, own := found.node.EtcdMembers(ctx)
	at := ownMember(v.m, found.facts.Hostname, members)
	if v.lastOfCluster(at, members, own, all) {
		return &departure{}, "", nil
	}
	asked := talos.EtcdReader(found.node)
	if own != nil || at < 0 || members[at].Learner {
		d.graceful = false
		peer, theirs, err := v.askPeer(ctx, all)
		switch {
		case err != nil && own != nil:
			return nil, fmt.Sprintf("etcd can't be asked for its members: %s; and no other control plane that is Ready can: %s; to leave the machine as it is, set spec.deletionPolicy to Orphan", own, err), nil
		case err != nil:
			return nil, fmt.Sprintf("the machine is no voter of etcd, and no control plane that is Ready can take it out: %s; to leave the machine as it is, set spec.deletionPolicy to Orphan", err), nil
		}
		d.peer, members, asked = peer, theirs, peer
		if at, why = memberOf(v.m, "", members, others(v.m, all)); why != "" {
			d.close()
			return nil, why, nil
		}
		if at >= 0 {
			d.member = &members[at]
		}
	}
	if why := alarmed(ctx, asked); why != "" {
		d.close()
		return nil, why, nil
	}
	if why := quorumWithout(v.m, at, members, all); why != "" {
		d.close()
		return nil, why, nil
	}
	return d, "", nil
}

// alarmed says which alarm etcd has: nobody leaves it while it has one.
func alarmed(ctx context.Context, node talos.EtcdReader) string {
	alarms, err := node.EtcdAlarms(ctx)
	switch {
	case err != nil:
		return fmt.Sprintf("etcd can't be asked for its alarms: %s", err)
	case len(alarms) > 0:
		return fmt.Sprintf("etcd has the alarm %s on member %x; mend that first", alarms[0].Kind, alarms[0].MemberID)
	}
	return ""
}

// lastOfCluster tells whether a control plane is the last machine of a cluster that is being destroyed: its etcd has no
// quorum to keep, and nobody else to leave it to.
func (v *visit) lastOfCluster(own int, members []talos.EtcdMember, etcd error, all []*v1alpha1.TalosMachine) bool {
	if !v.destroyed() || slices.ContainsFunc(all, func(other *v1alpha1.TalosMachine) bool { return isPeer(v.m, other) && isApproved(other) }) {
		return false
	}
	return etcd != nil || len(members) == 1 && own == 0
}

func isApproved(m *v1alpha1.TalosMachine) bool {
	return m.Spec.ApprovalState == v1alpha1.ApprovalApproved
}

// takeLeave asks for a control plane's turn to leave etcd; why says why it has to wait, else release gives the turn back. A
// worker has no turn to wait for.
func (v *visit) takeLeave(ctx context.Context) (release func(), reason, why string, err error) {
	if v.m.Spec.Role != v1alpha1.RoleControlPlane {
		return func() {}, "", "", nil
	}
	if !v.turns.claimLeave(v.m.UID) {
		return nil, reasonEtcdUnhealthy, "control planes leave one at a time, and another one is about to", nil
	}
	if name := operationOn(v.cluster); name != "" {
		reason, why = v1alpha1.ReasonWaitingForTurn, waitsForOperation(name)
	} else if other, otherErr := v.othersLeave(ctx); otherErr != nil {
		err = otherErr
	} else if other != "" {
		reason, why = reasonEtcdUnhealthy, fmt.Sprintf("control planes leave one at a time, and machine %s is leaving", other)
	}
	if err != nil || why != "" {
		v.turns.releaseLeave(v.m.UID)
		return nil, reason, why, err
	}
	return func() { v.turns.releaseLeave(v.m.UID) }, "", "", nil
}

// stays says why a machine that is being removed isn't told anything yet. One that was about to be, and wasn't, is in
// nobody's way.
func (v *visit) stays(reason, why string) {
	if leaving(v.m) && reason == v1alpha1.ReasonWaitingForTurn {
		v.setReset(metav1.ConditionFalse, reason, why)
	}
	v.removing(reason, why, pollWaiting)
}

// gaveWay asks the API itself, after what is about to be done was written down, whether it still may be: an operation may
// have claimed the cluster, a person have let all of its machines go, or another control plane have begun to leave by a
// process that lost the lead and doesn't know it yet. waits says that it may not, and that this is written in the
// conditions.
func (v *visit) gaveWay(ctx context.Context) (waits bool, err error) {
	cluster, err := v.Client.IchorV1alpha1().TalosClusters().Get(ctx, v.cluster.Name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read cluster %s: %w", v.cluster.Name, err)
	}
	why := ""
	switch name := operationOn(cluster); {
	case orphans(cluster):
		why = "the cluster is being deleted, and nothing is written to its machines"
	case v.m.Spec.Role == v1alpha1.RoleControlPlane && name != "":
		why = waitsForOperation(name)
	case v.m.Spec.Role == v1alpha1.RoleControlPlane:
		other, err := v.othersLeave(ctx)
		if err != nil {
			return false, err
		}
		if other != "" {
			why = fmt.Sprintf("control planes leave one at a time, and machine %s is leaving", other)
		}
	}
	if why == "" {
		return false, nil
	}
	v.setReset(metav1.ConditionFalse, v1alpha1.ReasonWaitingForTurn, why)
	v.removing(v1alpha1.ReasonWaitingForTurn, why, pollWaiting)
	return true, nil
}

// askPeer lets another control plane that is Ready list the members of etcd, on a connection on which it said who it is.
func (v *visit) askPeer(ctx context.Context, all []*v1alpha1.TalosMachine) (talos.ConfiguredNode, []talos.EtcdMember, error) {
	credentials, err := v.Credentials.CredentialsFor(ctx, v.cluster.Name)
	if err != nil {
		return nil, nil, err
	}
	errs := []error{errors.New("there is none")}
	for _, other := range others(v.m, all) {
		if other.DeletionTimestamp != nil || !isTrue(other, v1alpha1.ConditionReady) {
			continue
		}
		said := v.askOther(ctx, other, credentials)
		if said.err == nil {
			return said.node, said.members, nil
		}
		errs = append(errs, said.err)
	}
	if len(errs) > 1 {
		errs = errs[1:]
	}
	return nil, nil, errors.Join(errs...)
}

// others are the other approved control planes of a machine's cluster.
func others(m *v1alpha1.TalosMachine, all []*v1alpha1.TalosMachine) []*v1alpha1.TalosMachine {
	return slices.DeleteFunc(slices.Clone(all), func(other *v1alpha1.TalosMachine) bool { return !isPeer(m, other) || !isApproved(other) })
}

// isPeer tells whether other is another control plane of the same cluster.
func isPeer(m, other *v1alpha1.TalosMachine) bool {
	return other.UID != m.UID && other.Spec.Role == v1alpha1.RoleControlPlane && other.Spec.ClusterRef.Name == m.Spec.ClusterRef.Name
}

// ownMember is the index of a machine's own member, or -1. A member that never started has no name, so its ID and address
// tell as well.
func ownMember(m *v1alpha1.TalosMachine, hostname string, members []talos.EtcdMember) int {
	return slices.IndexFunc(members, func(member talos.EtcdMember) bool {
		if name := member.Hostname; name != "" && (name == hostname || name == m.Status.NodeName) || m.Status.EtcdMemberID == strconv.FormatUint(member.ID, 16) {
			return true
		}
		return slices.ContainsFunc(member.PeerURLs, func(url string) bool {
			return slices.ContainsFunc(m.Status.Addresses, func(address string) bool { return hasHost(url, address) })
		})
	})
}

// quorumWithout tells why a control plane can't leave etcd now: the healthy voters that stay have to be a quorum of the
// voters that stay. own is the index of its own member, -1 if it has none. A member that doesn't vote may always go.
func quorumWithout(m *v1alpha1.TalosMachine, own int, members []talos.EtcdMember, all []*v1alpha1.TalosMachine) string {
	ready := map[string]bool{}
	for _, other := range all {
		if !isPeer(m, other) {
			continue
		}
		if leaving(other) {
			return fmt.Sprintf("control planes leave one at a time, and machine %s is leaving", other.Name)
		}
		if isTrue(other, v1alpha1.ConditionReady) {
			ready[other.Status.Hostname] = true
		}
	}
	if own < 0 || members[own].Learner {
		return ""
	}
	voters, healthy := 0, 0
	for i, member := range members {
		if i == own {
			continue
		}
		if member.Learner {
			return fmt.Sprintf("etcd member %s is a learner; nothing leaves until it votes", member.Hostname)
		}
		voters++
		if ready[member.Hostname] {
			healthy++
		}
	}
	if quorum := voters/2 + 1; voters == 0 || healthy < quorum {
		return fmt.Sprintf("%d of the %d etcd members that would stay are Ready, %d are needed; bring them up first, or set spec.deletionPolicy to Orphan to leave the machine as it is", healthy, voters, quorum)
	}
	return ""
}

// leaving tells whether a machine was told to wipe itself, or may have been.
func leaving(m *v1alpha1.TalosMachine) bool {
	condition := find(m, v1alpha1.ConditionReset)
	return m.DeletionTimestamp != nil && condition != nil && condition.Status != metav1.ConditionFalse
}

// othersLeave asks the API itself, as the cache may be late, for another control plane that is leaving.
func (v *visit) othersLeave(ctx context.Context) (string, error) {
	list, err := v.Client.IchorV1alpha1().TalosMachines().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list machines: %w", err)
	}
	for i := range list.Items {
		if other := &list.Items[i]; isPeer(v.m, other) && leaving(other) {
			return other.Name, nil
		}
	}
	return "", nil
}
