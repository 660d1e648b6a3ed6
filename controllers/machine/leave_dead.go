// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// view is what the control planes that stay say of etcd.
type view struct {
	// peer is the connection to the one whose list of members counts; nil if none has one.
	peer    talos.ConfiguredNode
	members []talos.EtcdMember
	alarms  []talos.EtcdAlarm
	// healthy are the members that say themselves that they are, by their IDs.
	healthy map[uint64]bool
	// silent says why the others gave no answer.
	silent []string
}

func memberID(member *talos.EtcdMember) string { return strconv.FormatUint(member.ID, 16) }

// planWithout finds out how a control plane that takes no part can be taken out of etcd, or why it can't now. recorded is
// the member that it was decided to remove before; then no other one is. A departure without a member is one of a machine
// that has none. It is never nil.
func (v *visit) planWithout(ctx context.Context, recorded string) (d *departure, why string, err error) {
	d = &departure{}
	if v.m.Spec.Role != v1alpha1.RoleControlPlane {
		return d, "", nil
	}
	all, err := v.machines.List(labels.Everything())
	if err != nil {
		return d, "", fmt.Errorf("list machines: %w", err)
	}
	peers := others(v.m, all)
	if len(peers) == 0 {
		return d, "", nil // there is no etcd but its own
	}
	seen, err := v.askOthers(ctx, peers)
	if err != nil {
		return d, "", err
	}
	if seen.peer == nil {
		return d, fmt.Sprintf("no other control plane has an etcd with a leader that could take it out: %s; restore etcd first", strings.Join(seen.silent, "; ")), nil
	}
	d.peer = seen.peer
	at, why := memberOf(v.m, recorded, seen.members, peers)
	if why == "" {
		why = quorumToRemove(at, seen)
	}
	if why == "" && at >= 0 {
		d.member = &seen.members[at]
	}
	return d, why, nil
}

// outOfEtcd asks the other control planes whether etcd has no member of the machine any more, and says why that isn't so, or
// isn't known.
func (v *visit) outOfEtcd(ctx context.Context) (out bool, why string, err error) {
	d, why, err := v.planWithout(ctx, "")
	if err != nil {
		return false, "", err
	}
	defer d.close()
	if why == "" && d.member != nil {
		why = fmt.Sprintf("etcd still has its member %s", memberID(d.member))
	}
	return why == "", why, nil
}

// askOthers asks all other control planes at once, each on a connection on which it said who it is.
func (v *visit) askOthers(ctx context.Context, peers []*v1alpha1.TalosMachine) (*view, error) {
	credentials, err := v.Credentials.CredentialsFor(ctx, v.cluster.Name)
	if err != nil {
		return nil, err
	}
	answers := make([]voice, len(peers))
	var running sync.WaitGroup
	for i, other := range peers {
		running.Go(func() { answers[i] = v.askOther(ctx, other, credentials) })
	}
	running.Wait()
	seen := &view{healthy: map[uint64]bool{}}
	for i, each := range answers {
		if each.err != nil {
			seen.silent = append(seen.silent, peers[i].Name+": "+each.err.Error())
			continue
		}
		if each.status.KnowsLeader() && len(each.status.Errors) == 0 && !each.status.Learner {
			seen.healthy[each.status.MemberID] = true
		}
		if seen.peer != nil {
			_ = each.node.Close()
			continue
		}
		seen.peer, seen.members, seen.alarms = each.node, each.members, each.alarms
	}
	return seen, nil
}

// voice is what one control plane says of etcd; its connection is open if there is no error.
type voice struct {
	node    talos.ConfiguredNode
	status  talos.EtcdStatus
	members []talos.EtcdMember
	alarms  []talos.EtcdAlarm
	err     error
}

func (v *visit) askOther(ctx context.Context, other *v1alpha1.TalosMachine, credentials talos.Credentials) voice {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	errs := []error{errors.New("no address of it is known")}
	for _, address := range candidates(other) {
		node, err := v.Dialer.DialConfigured(ctx, address, credentials)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		said := listen(ctx, node, other)
		if said.err == nil {
			return said
		}
		errs = append(errs, said.err, node.Close())
	}
	if len(errs) > 1 {
		errs = errs[1:]
	}
	return voice{err: errors.Join(errs...)}
}

func listen(ctx context.Context, node talos.ConfiguredNode, other *v1alpha1.TalosMachine) (said voice) {
	said.node = node
	who, err := node.Identity(ctx)
	if err == nil && !same(other.Spec.Identity, who) {
		err = fmt.Errorf("another machine answers there (%s)", describeIdentity(who))
	}
	if err == nil {
		said.status, err = node.EtcdStatus(ctx)
	}
	if err == nil {
		said.members, err = node.EtcdMembers(ctx)
	}
	if err == nil {
		said.alarms, err = node.EtcdAlarms(ctx)
	}
	said.err = err
	return said
}

// memberOf is the index of the member that a machine which is silent has, or -1; or why that isn't sure. The ID tells, and
// what it is called has to agree with it: no member of another machine is ever taken for it. Without an ID on record it is
// the one with the machine's hostname, or a nameless one with its address, that no other machine is known to have. Once it
// was decided to remove one, it is that or none.
func memberOf(m *v1alpha1.TalosMachine, recorded string, members []talos.EtcdMember, peers []*v1alpha1.TalosMachine) (at int, why string) {
	id := recorded
	if id == "" {
		id = m.Status.EtcdMemberID
	}
	at = slices.IndexFunc(members, func(member talos.EtcdMember) bool { return id != "" && memberID(&member) == id })
	if at >= 0 {
		if name := members[at].Hostname; name != "" && !isCalled(m, name) {
			return -1, fmt.Sprintf("etcd member %s is called %s, and the machine %s: it is another one's, and isn't removed", id, name, m.Status.Hostname)
		}
		return at, ""
	}
	if recorded != "" {
		return -1, "" // it is gone
	}
	at = slices.IndexFunc(members, func(member talos.EtcdMember) bool {
		if member.Hostname != "" {
			return isCalled(m, member.Hostname)
		}
		return slices.ContainsFunc(member.PeerURLs, func(url string) bool {
			return slices.ContainsFunc(m.Status.Addresses, func(address string) bool { return hasHost(url, address) })
		})
	})
	if at < 0 {
		return -1, ""
	}
	for _, other := range peers {
		if other.Status.EtcdMemberID == memberID(&members[at]) || members[at].Hostname != "" && isCalled(other, members[at].Hostname) {
			return -1, fmt.Sprintf("etcd member %s (%s) may be machine %s's, and isn't removed", memberID(&members[at]), members[at].Hostname, other.Name)
		}
	}
	return at, ""
}

// isCalled tells whether a name is one of a machine's own.
func isCalled(m *v1alpha1.TalosMachine, name string) bool {
	return name == m.Spec.Hostname || name == m.Status.Hostname || name == m.Status.NodeName
}

// quorumToRemove says why a member that takes no part can't be removed now: that takes a quorum of those that vote now,
// so there is one of fewer voters afterwards, too. own is -1 if there is nothing to remove.
func quorumToRemove(own int, seen *view) string {
	if own < 0 {
		return ""
	}
	if len(seen.alarms) > 0 {
		return fmt.Sprintf("etcd has the alarm %s on member %x; mend that first", seen.alarms[0].Kind, seen.alarms[0].MemberID)
	}
	voters, healthy := 0, 0
	for i, member := range seen.members {
		switch {
		case member.Learner && i != own:
			return fmt.Sprintf("etcd member %s is a learner; nothing is removed until it votes", member.Hostname)
		case member.Learner:
		default:
			voters++
			if i != own && seen.healthy[member.ID] {
				healthy++
			}
		}
	}
	if quorum := voters/2 + 1; healthy < quorum {
		why := fmt.Sprintf("etcd has %d voters, and %d of the others are healthy, where %d are needed to take this one out", voters, healthy, quorum)
		if len(seen.silent) > 0 {
			why += "; no answer from " + strings.Join(seen.silent, "; ")
		}
		return why
	}
	return ""
}
