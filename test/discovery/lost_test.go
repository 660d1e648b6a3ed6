// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

// The connection over which a machine is sent its configuration breaks before the answer. Whether the machine has it, only
// the machine can tell; meanwhile it may be somewhere else, and somebody else where it was.
func TestTheAnswerOfAMachineIsLost(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	same := func(*fleet.Machine) {}
	moves, movesEntry := s.start(same)
	leaves, leavesEntry := s.start(same)
	cut, cutEntry := s.start(same)
	boots, bootsEntry := s.start(same)
	forgets, forgetsEntry := s.start(func(m *fleet.Machine) { m.Timings.Install = fleet.Duration(time.Hour) })
	goes, goesEntry := s.start(same)
	s.work()
	pins := map[string]string{}
	// send approves a machine and waits until it was sent its configuration. The clock stands still then.
	send := func(n *node.Node, entry fleet.Machine, hostname string, fault func()) {
		t.Helper()
		fault()
		pins[nameOf(entry)] = s.object(entry).Status.MaintenanceFingerprint
		s.approve(entry, hostname, false)
		s.soon(hostname+" is sent its configuration", func() bool {
			calls, _ := sends(n)
			return calls == 1
		})
	}

	// Accepted, and the machine comes back in another network.
	send(moves, movesEntry, "moves", moves.DropApply)
	there := s.elsewhere(moves)
	if err := moves.ChangeAddress(there); err != nil {
		t.Fatal(err)
	}
	// Accepted, and when it has moved an impostor that says the same of itself in all takes its old address.
	send(leaves, leavesEntry, "leaves", leaves.DropApply)
	old, away := leaves.Address(), s.elsewhere(leaves)
	if err := leaves.ChangeAddress(away); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, leaves, func(st node.Status) bool { return st.Address == away.Addr() && st.Listening })
	impostor := s.impostor(leavesEntry, old)
	// Cut off before the request was complete.
	send(cut, cutEntry, "cut", cut.CutApply)
	// Cut off, and the machine boots: it has another certificate.
	send(boots, bootsEntry, "boots", boots.CutApply)
	s.boot(boots)
	// Accepted, but in memory only: without power it forgets that.
	send(forgets, forgetsEntry, "forgets", forgets.DropApply)
	s.boot(forgets)
	// Cut off, and the machine goes without coming back; an impostor takes its place.
	send(goes, goesEntry, "goes", goes.CutApply)
	if err := goes.PowerOff(); err != nil {
		t.Fatal(err)
	}
	second := s.impostor(goesEntry, goes.Address())

	for what, each := range map[string]struct {
		entry fleet.Machine
		n     *node.Node
		at    netip.Addr
		calls uint64
	}{
		"the machine that moved":                         {movesEntry, moves, there.Addr(), 1},
		"the machine whose old address an impostor took": {leavesEntry, leaves, away.Addr(), 1},
		"the machine whose request was cut off":          {cutEntry, cut, cut.Address(), 2},
	} {
		s.ready(what, each.entry, each.n)
		m := s.object(each.entry)
		if m.Status.Addresses[0] != each.at.String() || m.Status.Provisioning.Fingerprint != pins[m.Name] {
			t.Errorf("%s is at %v, pinned to %s, approved was %s", what, m.Status.Addresses, m.Status.Provisioning.Fingerprint, pins[m.Name])
		}
		if calls, _ := sends(each.n); calls != each.calls || len(each.n.Applies()) != 1 || uint64(m.Status.Provisioning.Attempts) != each.calls {
			t.Errorf("%s was sent %d configurations in %d attempts and took %d, want %d and 1", what, calls, m.Status.Provisioning.Attempts, len(each.n.Applies()), each.calls)
		}
	}
	for what, entry := range map[string]fleet.Machine{
		"the machine that booted": bootsEntry, "the machine that forgot": forgetsEntry, "the machine that went": goesEntry,
	} {
		s.soon(what+" isn't trusted", func() bool {
			return s.is(entry, v1alpha1.ConditionFingerprintTrusted) == "False "+v1alpha1.ReasonFingerprintChanged
		})
	}
	// Well beyond every time after which something is tried again.
	for range 30 {
		s.clock.Step(30 * time.Second)
		s.soon("time passes", func() bool { return true })
	}
	s.rescan()
	for what, n := range map[string]*node.Node{"the first impostor": impostor, "the second impostor": second} {
		if calls, size := sends(n); calls != 0 || size != 0 {
			t.Errorf("%s was sent %d configurations with %d bytes", what, calls, size)
		}
		if n.Status().Connections == 0 {
			t.Errorf("%s was never looked at, so this shows nothing", what)
		}
	}
	for what, n := range map[string]*node.Node{"the machine that booted": boots, "the machine that forgot": forgets} {
		if calls, _ := sends(n); calls != 1 {
			t.Errorf("%s was sent %d configurations, want the first only", what, calls)
		}
		if m := n.Status(); !node.InMaintenance(m) {
			t.Errorf("%s is %+v", what, m)
		}
	}
	// A person who saw the certificate on the console vouches for it.
	s.annotate(bootsEntry, v1alpha1.TrustMaintenanceFingerprintAnnotation, boots.Status().Fingerprint)
	s.ready("the machine that booted", bootsEntry, boots)
	s.stop()
}

// boot switches a machine off and on, and waits until it is in maintenance mode with another certificate.
func (s *shop) boot(n *node.Node) {
	s.Helper()
	before := n.Status().Fingerprint
	if err := n.PowerOff(); err != nil {
		s.Fatal(err)
	}
	if err := n.PowerOn(); err != nil {
		s.Fatal(err)
	}
	hollowtest.Wait(s, n, func(st node.Status) bool { return node.InMaintenance(st) && st.Fingerprint != before })
}

// impostor is a machine in maintenance mode that says of itself all that another one says, at its address.
func (s *shop) impostor(of fleet.Machine, at netip.Addr) *node.Node {
	s.Helper()
	of.Name += "-impostor"
	of.Address = fleet.Prefix{Prefix: netip.PrefixFrom(at, 24)}
	n := s.rack.Start(of)
	hollowtest.Wait(s, n, node.InMaintenance)
	return n
}

// Two machines that are approved and not configured yet swap their addresses. Talos makes new certificates then, so nothing
// is sent until a person has compared them; and then each gets its own configuration.
func TestApprovedMachinesSwapTheirAddresses(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	a, entryA := s.start(func(*fleet.Machine) {})
	b, entryB := s.start(func(*fleet.Machine) {})
	s.work()
	s.approve(entryA, "alpha", true)
	s.approve(entryB, "beta", true)
	atA, atB := netip.PrefixFrom(a.Address(), 24), netip.PrefixFrom(b.Address(), 24)
	for _, step := range []struct {
		n  *node.Node
		to netip.Prefix
	}{{a, netip.PrefixFrom(s.rack.Addr(), 24)}, {b, atA}, {a, atB}} {
		if err := step.n.ChangeAddress(step.to); err != nil {
			t.Fatal(err)
		}
		hollowtest.Wait(t, step.n, func(st node.Status) bool { return node.InMaintenance(st) && st.Address == step.to.Addr() })
	}
	for _, entry := range []fleet.Machine{entryA, entryB} {
		s.annotate(entry, v1alpha1.HoldApplyAnnotation, "-")
	}
	for _, entry := range []fleet.Machine{entryA, entryB} {
		s.soon("the certificate is noticed", func() bool {
			return s.is(entry, v1alpha1.ConditionFingerprintTrusted) == "False "+v1alpha1.ReasonFingerprintChanged
		})
	}
	s.scan("after the swap")
	s.scan("and once more")
	for what, each := range map[string]struct {
		entry fleet.Machine
		n     *node.Node
		at    netip.Prefix
	}{"alpha": {entryA, a, atB}, "beta": {entryB, b, atA}} {
		if m := s.object(each.entry); m.Status.Addresses[0] != each.at.Addr().String() || m.Status.MaintenanceFingerprint != each.n.Status().Fingerprint {
			t.Errorf("%s is at %v with %s", what, m.Status.Addresses, m.Status.MaintenanceFingerprint)
		}
		if calls, _ := sends(each.n); calls != 0 {
			t.Errorf("%s was sent %d configurations", what, calls)
		}
	}
	for hostname, each := range map[string]struct {
		entry fleet.Machine
		n     *node.Node
	}{"alpha": {entryA, a}, "beta": {entryB, b}} {
		s.annotate(each.entry, v1alpha1.TrustMaintenanceFingerprintAnnotation, each.n.Status().Fingerprint)
		s.ready(hostname, each.entry, each.n)
		if got := each.n.Status().Hostname; got != hostname || len(each.n.Applies()) != 1 {
			t.Errorf("%s is called %s and took %d configurations", hostname, got, len(each.n.Applies()))
		}
	}
	s.stop()
	if nodes, err := s.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil || len(nodes.Items) != 2 {
		t.Errorf("%d Nodes, %v", len(nodes.Items), err)
	}
}
