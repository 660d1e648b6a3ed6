// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"maesh.dev/ichor/pkg/talos"
)

// etcdOf puts together what the machines say of etcd. It decides nothing.
func etcdOf(views []View) Etcd {
	etcd := Etcd{Members: []Member{}, Alarms: []Alarm{}}
	if list := listOf(views); list != nil {
		etcd.Source = FromEtcd
		for i := range list {
			etcd.Members = append(etcd.Members, listedMember(&list[i], views))
		}
	} else if known := controlPlanesOf(views); len(known) > 0 {
		etcd.Source, etcd.Members = FromDiscovery, known
	}
	slices.SortFunc(etcd.Members, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.Hostname, b.Hostname), strings.Compare(a.Address, b.Address))
	})
	for i := range etcd.Members {
		member := &etcd.Members[i]
		switch {
		case member.Learner:
			etcd.Learners++
			continue
		case member.Answers:
			etcd.Answering++
		}
		etcd.Voters++
	}
	if etcd.Voters > 0 {
		etcd.Needed = etcd.Voters/2 + 1
	}
	etcd.Quorum = quorumOf(&etcd, views)
	etcd.Alarms = append(etcd.Alarms, alarmsOf(&etcd, views)...)
	if order := Candidates(&etcd); len(order) > 0 {
		etcd.MostAdvanced = order[0].Name()
	}
	return etcd
}

func quorumOf(etcd *Etcd, views []View) Quorum {
	for i := range views {
		if views[i].Status != nil && views[i].Status.KnowsLeader() {
			return QuorumHeld
		}
	}
	switch {
	case !slices.ContainsFunc(views, func(v View) bool { return v.controlPlane() }):
		return QuorumUnknown
	case etcd.Answering > 0 && etcd.Answering >= etcd.Needed:
		return QuorumElecting
	default:
		return QuorumLost
	}
}

// listOf is the members as etcd lists them: the longest list, if several machines gave one.
func listOf(views []View) []talos.EtcdMember {
	var list []talos.EtcdMember
	for i := range views {
		if len(views[i].Members) > len(list) {
			list = views[i].Members
		}
	}
	return list
}

// listedMember joins a member of etcd's list to the machine that it runs on.
func listedMember(listed *talos.EtcdMember, views []View) Member {
	member := Member{ID: strconv.FormatUint(listed.ID, 16), Hostname: listed.Hostname, Learner: listed.Learner}
	addresses := peerAddresses(listed)
	if len(addresses) > 0 {
		member.Address = addresses[0].String()
	}
	for i := range views {
		v := &views[i]
		same := v.Status != nil && v.Status.MemberID == listed.ID
		if !same && v.Status == nil { // a machine that runs another member is not this one's, whatever its address
			same = slices.ContainsFunc(addresses, v.has) || v.Survey != nil && listed.Hostname != "" && v.Survey.Hostname == listed.Hostname
		}
		if same {
			member.see(v)
			break
		}
	}
	return member
}

// peerAddresses are where other members reach this one.
func peerAddresses(member *talos.EtcdMember) []netip.Addr {
	var addresses []netip.Addr
	for _, text := range member.PeerURLs {
		parsed, err := url.Parse(text)
		if err != nil {
			continue
		}
		if address, err := netip.ParseAddr(parsed.Hostname()); err == nil {
			addresses = append(addresses, address.Unmap())
		}
	}
	return addresses
}

// see takes over what is known of the member's machine.
func (m *Member) see(v *View) {
	m.Address, m.Machine, m.Service, m.Problem = v.Address.String(), v.State, v.service(etcdService), v.StatusProblem
	if v.State != Answers {
		m.Problem = v.Message
	}
	if v.Survey != nil && m.Hostname == "" {
		m.Hostname = v.Survey.Hostname
	}
	if s := v.Status; s != nil {
		m.ID, m.Answers, m.Learner, m.Leader = strconv.FormatUint(s.MemberID, 16), true, s.Learner, s.KnowsLeader() && s.Leader == s.MemberID
		m.RaftTerm, m.RaftIndex, m.RaftApplied = s.RaftTerm, s.RaftIndex, s.RaftApplied
		m.DBSize, m.DBInUse, m.Version, m.Errors = s.Size, s.InUse, s.Version, s.Errors
		m.Problem = ""
	}
}

// controlPlanesOf stands in for etcd's list, which takes a quorum: the control planes that answer, and those that
// discovery knows.
func controlPlanesOf(views []View) []Member {
	var members []Member
	peers := peersOf(views)
	for i := range views {
		v := &views[i]
		if !v.controlPlane() || v.Survey == nil && peerAt(peers, v.Address) != nil { // then it is one of those below
			continue
		}
		member := Member{}
		member.see(v)
		members = append(members, member)
	}
	for _, peer := range peers {
		if !peer.ControlPlane || answers(views, &peer) {
			continue
		}
		member := Member{Hostname: peer.Hostname}
		if len(peer.Addresses) > 0 {
			member.Address = peer.Addresses[0].String()
		}
		if i := slices.IndexFunc(views, func(v View) bool { return v.Survey == nil && slices.Contains(peer.Addresses, v.Address) }); i >= 0 {
			member.see(&views[i])
		}
		members = append(members, member)
	}
	return members
}

// answers tells whether a machine that discovery knows is one of those that answered. A machine that was wiped has
// another id and perhaps its old name: discovery remembers both for half an hour.
func answers(views []View, peer *talos.Peer) bool {
	return slices.ContainsFunc(views, func(v View) bool {
		return v.Survey != nil && (v.Survey.NodeID != "" && v.Survey.NodeID == peer.NodeID || v.Survey.Hostname == peer.Hostname)
	})
}

// statusAlarm matches an alarm among a member's errors. Source: etcd, etcdserverpb.AlarmMember.String.
var statusAlarm = regexp.MustCompile(`memberID:(\d+)\s+alarm:(\w+)`)

// alarmsOf are the alarms as etcd lists them and, since that takes a quorum, as its members know them.
func alarmsOf(etcd *Etcd, views []View) []Alarm {
	seen := map[Alarm]bool{}
	for i := range views {
		for _, alarm := range views[i].Alarms {
			seen[Alarm{Member: memberName(etcd, alarm.MemberID), Kind: alarm.Kind}] = true
		}
		if views[i].Status == nil {
			continue
		}
		for _, text := range views[i].Status.Errors {
			if found := statusAlarm.FindStringSubmatch(text); found != nil {
				id, _ := strconv.ParseUint(found[1], 10, 64) // digits only; one that is too large is nobody's
				seen[Alarm{Member: memberName(etcd, id), Kind: found[2]}] = true
			}
		}
	}
	alarms := make([]Alarm, 0, len(seen))
	for alarm := range seen {
		alarms = append(alarms, alarm)
	}
	slices.SortFunc(alarms, func(a, b Alarm) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Member, b.Member))
	})
	return alarms
}

func memberName(etcd *Etcd, id uint64) string {
	text := strconv.FormatUint(id, 16)
	for i := range etcd.Members {
		if etcd.Members[i].ID == text {
			return etcd.Members[i].Name()
		}
	}
	return text
}

// Candidates are the members that a snapshot may be taken from, the best first: voters before learners, and of those the
// one whose database holds the most. A member whose data is corrupt is none.
func Candidates(etcd *Etcd) []Member {
	var list []Member
	for i := range etcd.Members {
		member := etcd.Members[i]
		if member.Answers && !slices.Contains(etcd.Alarms, Alarm{Member: member.Name(), Kind: corrupt}) {
			list = append(list, member)
		}
	}
	slices.SortStableFunc(list, func(a, b Member) int {
		return cmp.Or(
			cmp.Compare(boolInt(a.Learner), boolInt(b.Learner)),
			cmp.Compare(b.RaftApplied, a.RaftApplied),
			cmp.Compare(b.RaftIndex, a.RaftIndex),
			cmp.Compare(len(a.Errors), len(b.Errors)),
		)
	})
	return list
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Arithmetic says in words what the numbers mean.
func (e *Etcd) Arithmetic() string {
	if e.Voters == 0 {
		return "nobody tells which members there are"
	}
	text := fmt.Sprintf("%d of %d voters answer, a quorum takes %d", e.Answering, e.Voters, e.Needed)
	if spare := e.Answering - e.Needed; e.Quorum == QuorumHeld && spare >= 0 {
		text += fmt.Sprintf(", tolerates the loss of %d more", spare)
	}
	return text
}
