// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"maesh.dev/ichor/pkg/talos"
)

// View is what was seen at one address: the raw material of a report.
type View struct {
	Address netip.Addr
	State   NodeState
	Message string
	// Survey is nil unless the machine answered.
	Survey *talos.Survey
	// Status is nil unless a member of etcd runs there and answered; StatusProblem says why not.
	Status        *talos.EtcdStatus
	StatusProblem string
	// Members and Alarms are what etcd says, which takes a quorum.
	Members []talos.EtcdMember
	Alarms  []talos.EtcdAlarm
}

// has tells whether an address is the machine's.
func (v *View) has(address netip.Addr) bool {
	return v.Address == address || v.Survey != nil && slices.Contains(v.Survey.Addresses, address)
}

// controlPlane tells that the machine is one, by its word or by its etcd.
func (v *View) controlPlane() bool {
	return v.Status != nil || v.Survey != nil && v.Survey.ControlPlane
}

// service is the state of one of the machine's services; empty if there is none.
func (v *View) service(id string) string {
	if v.Survey == nil {
		return ""
	}
	for _, service := range v.Survey.Services {
		if service.ID == id {
			return service.State
		}
	}
	return ""
}

// peersOf are the machines that any of the others knows by discovery.
func peersOf(views []View) []talos.Peer {
	var peers []talos.Peer
	known := map[string]bool{}
	for i := range views {
		if views[i].Survey == nil {
			continue
		}
		for _, peer := range views[i].Survey.Peers {
			if key := peer.NodeID + "/" + peer.Hostname; !known[key] {
				known[key] = true
				peers = append(peers, peer)
			}
		}
	}
	slices.SortFunc(peers, func(a, b talos.Peer) int { return strings.Compare(a.Hostname, b.Hostname) })
	return peers
}

// peerAt is the machine that discovery knows at an address.
func peerAt(peers []talos.Peer, address netip.Addr) *talos.Peer {
	for i := range peers {
		if slices.Contains(peers[i].Addresses, address) {
			return &peers[i]
		}
	}
	return nil
}

// nodesOf sums up every machine, in the order of their addresses.
func nodesOf(views []View) []Node {
	peers := peersOf(views)
	nodes := make([]Node, 0, len(views))
	for i := range views {
		nodes = append(nodes, nodeOf(&views[i], peers))
	}
	return nodes
}

func nodeOf(v *View, peers []talos.Peer) Node {
	node := Node{Address: v.Address.String(), State: v.State, Message: v.Message, Role: UnknownRole}
	if v.Survey == nil {
		if peer := peerAt(peers, v.Address); peer != nil {
			node.Hostname, node.Role = peer.Hostname, roleOf(peer.ControlPlane)
		}
		if v.controlPlane() {
			node.Role = ControlPlane
		}
		return node
	}
	s := v.Survey
	node.Hostname, node.Role, node.TalosVersion = s.Hostname, roleOf(s.ControlPlane), s.TalosVersion
	node.Stage, node.Ready, node.Unmet = string(s.Stage.Stage), s.Stage.Ready, s.Stage.Unmet
	node.Services = servicesOf(s)
	node.TimeSynced = &s.TimeSynced
	if !s.Clock.IsZero() {
		offset := s.Clock.Sub(s.ReadAt).Round(time.Millisecond).Seconds()
		node.ClockOffsetSeconds = &offset
	}
	return node
}

func roleOf(controlPlane bool) string {
	if controlPlane {
		return ControlPlane
	}
	return Worker
}

// servicesOf are those that a cluster stands on.
func servicesOf(s *talos.Survey) []Service {
	var out []Service
	for _, service := range s.Services {
		if service.ID == etcdService || service.ID == kubeletService {
			out = append(out, Service{Name: service.ID, State: service.State, Health: healthOf(service), Message: service.Message})
		}
	}
	for _, pod := range s.StaticPods {
		if strings.HasPrefix(pod.Name, apiServerPod) {
			health := Unhealthy
			if pod.Ready {
				health = Healthy
			}
			out = append(out, Service{Name: apiServerPod, State: "Running", Health: health})
		}
	}
	return out
}

func healthOf(service talos.Service) string {
	switch {
	case service.Unknown:
		return UnknownHealth
	case service.Healthy:
		return Healthy
	default:
		return Unhealthy
	}
}
