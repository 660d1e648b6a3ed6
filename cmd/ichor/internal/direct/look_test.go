// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is a scripted control plane, the number-th of three.
func machine(number int, change func(*talostest.State)) *talostest.Machine {
	state := talostest.State{
		Mode: talostest.Configured, Members: members(3),
		Survey: talos.Survey{NodeID: fmt.Sprint("node-", number), Hostname: fmt.Sprint("cp-", number), ControlPlane: true, Addresses: []netip.Addr{address(number)}, Peers: peers(3)},
		Etcd:   &talos.EtcdStatus{MemberID: uint64(number), Leader: 1, RaftApplied: 10},
	}
	if change != nil {
		change(&state)
	}
	return talostest.NewMachine(state)
}

// hanging is a network in which some addresses take connections and never say a word.
type hanging struct {
	*talostest.World
	silent map[netip.Addr]bool
}

func (h hanging) DialConfigured(ctx context.Context, address netip.Addr, credentials talos.Credentials) (talos.ConfiguredNode, error) {
	if h.silent[address] {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.World.DialConfigured(ctx, address, credentials)
}

func (h hanging) Probe(ctx context.Context, address netip.Addr) talos.Probe {
	if h.silent[address] {
		<-ctx.Done()
		return talos.Probe{Address: address, Class: v1alpha1.HostUnreachable}
	}
	return h.World.Probe(ctx, address)
}

func states(views []View) map[string]string {
	out := map[string]string{}
	for _, view := range views {
		name := ""
		if view.Survey != nil {
			name = " " + view.Survey.Hostname
		}
		etcd := ""
		if view.Status != nil {
			etcd = " etcd"
		}
		out[view.Address.String()] = string(view.State) + name + etcd
	}
	return out
}

func TestOneControlPlaneLeadsToTheOthers(t *testing.T) {
	t.Parallel()
	world := talostest.NewWorld()
	world.Put("10.0.0.1", machine(1, nil))
	world.Put("10.0.0.2", machine(2, func(s *talostest.State) { s.Mode = talostest.Maintenance }))
	world.Put("10.0.0.3", machine(3, func(s *talostest.State) { s.Mode = talostest.Locked }))
	world.Put("10.0.0.100", machine(1, nil)) // a virtual address of the first
	world.Put("10.0.0.9", machine(9, func(s *talostest.State) { s.Mode = talostest.NotTalos }))
	looker := &Looker{Dialer: world, Prober: world}
	want := map[string]string{
		"10.0.0.1": "Answers cp-1 etcd", "10.0.0.2": "Maintenance", "10.0.0.3": "Refused", "10.0.0.8": "Silent", "10.0.0.9": "NotTalos",
	}
	virtual := netip.MustParseAddr("10.0.0.100")
	got := states(looker.Look(t.Context(), []netip.Addr{virtual, address(9), address(8)}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("by its virtual address (-want +got):\n%s", diff)
	}
	got = states(looker.Look(t.Context(), []netip.Addr{virtual, address(1), address(8), address(9)}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("by both addresses (-want +got):\n%s", diff)
	}

	// Behind a router, a machine doesn't answer at its own address.
	world.Put("10.0.0.1", nil)
	delete(want, "10.0.0.1")
	want["10.0.0.100"] = "Answers cp-1 etcd"
	got = states(looker.Look(t.Context(), []netip.Addr{virtual, address(8), address(9)}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("by the only address that it answers at (-want +got):\n%s", diff)
	}
}

func TestAControlPlaneWhoseStateCantBeReadCounts(t *testing.T) {
	t.Parallel()
	views := seen(leaderless(1, 10), leaderless(2, 20), silent)
	views[1].Survey, views[1].Message = nil, "DeadlineExceeded"
	etcd := etcdOf(views)
	if etcd.Quorum != QuorumElecting || etcd.Voters != 3 || etcd.Answering != 2 || etcd.MostAdvanced != "cp-2" {
		t.Errorf("etcd %+v", etcd)
	}
	if node := nodesOf(views)[1]; node.Role != ControlPlane || node.Hostname != "cp-2" {
		t.Errorf("node %+v", node)
	}
	for i := range views {
		views[i].Survey = nil // and nobody tells who the others are
	}
	if etcd := etcdOf(views); etcd.Voters != 2 || etcd.Answering != 2 || etcd.Members[1].Name() != "10.0.0.2" {
		t.Errorf("etcd %+v", etcd)
	}
}

func TestMembersLeadToMachinesWhereDiscoveryIsOff(t *testing.T) {
	t.Parallel()
	world := talostest.NewWorld()
	for i := 1; i <= 3; i++ {
		world.Put(address(i).String(), machine(i, func(s *talostest.State) { s.Survey.Peers = nil }))
	}
	got := states((&Looker{Dialer: world, Prober: world}).Look(t.Context(), []netip.Addr{address(2)}))
	want := map[string]string{"10.0.0.1": "Answers cp-1 etcd", "10.0.0.2": "Answers cp-2 etcd", "10.0.0.3": "Answers cp-3 etcd"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("machines (-want +got):\n%s", diff)
	}
}

func TestMachinesThatHangCostTheirTimeOnce(t *testing.T) {
	t.Parallel()
	world := talostest.NewWorld()
	world.Put("10.0.0.1", machine(1, func(s *talostest.State) { s.NoQuorum, s.Etcd.Leader = true, 0 }))
	silent := map[netip.Addr]bool{}
	named := []netip.Addr{address(1)}
	for i := 2; i <= parallel; i++ {
		silent[address(i)] = true
		named = append(named, address(i))
	}
	looker := &Looker{Dialer: hanging{world, silent}, Prober: hanging{world, silent}, Timeout: 200 * time.Millisecond}
	begin := time.Now()
	views := looker.Look(t.Context(), named)
	// Twice the timeout for each that hangs: the connection, and finding out what it is.
	if took := time.Since(begin); took > 10*looker.Timeout {
		t.Errorf("it took %s with %d machines that hang, each for at most %s", took, len(silent), 2*looker.Timeout)
	}
	if len(views) != len(named) || views[0].State != Answers || views[1].State != Silent {
		t.Errorf("machines %v", states(views))
	}
	if etcd := etcdOf(views); etcd.Quorum != QuorumLost || etcd.Source != FromDiscovery || etcd.Voters != 3 || etcd.Answering != 1 {
		t.Errorf("etcd %+v", etcd)
	}
}

func TestALookEndsWithItsContext(t *testing.T) {
	t.Parallel()
	world := talostest.NewWorld()
	all := hanging{world, map[netip.Addr]bool{address(1): true}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if views := (&Looker{Dialer: all, Prober: all}).Look(ctx, []netip.Addr{address(1)}); views[0].State != Silent {
		t.Errorf("machines %v", states(views))
	}
}

func TestAMachineThatIsBusyIsSilent(t *testing.T) {
	t.Parallel()
	world := talostest.NewWorld()
	world.Put("10.0.0.1", machine(1, func(s *talostest.State) { s.Unreadable = true }))
	views := (&Looker{Dialer: world, Prober: world}).Look(t.Context(), []netip.Addr{address(1)})
	if views[0].State != Silent || views[0].Message == "" {
		t.Errorf("machines %+v", views)
	}
}
