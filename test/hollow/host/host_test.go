// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/host"
	"maesh.dev/ichor/test/hollow/loopback"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/hollow/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newFleet makes machines on addresses of the test.
func newFleet(t *testing.T, machines int) *fleet.Fleet {
	t.Helper()
	block, err := loopback.Claim()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := block.Close(); err != nil {
			t.Error(err)
		}
	})
	fast := fleet.Duration(10 * time.Millisecond)
	f, err := fleet.Generate(fleet.GenerateOptions{
		Machines: machines, First: block.Addr(1), Timings: fleet.Timings{Boot: fast, Install: fast, Reboot: fast, Pull: fast, FatalPause: fast},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func fake(fleet.Machine) (workload.Factory, error) { return hollowtest.FakeWorkload{}, nil }

// find returns a machine of the host.
func find(t *testing.T, h *host.Host, name string) *node.Node {
	t.Helper()
	n, err := h.Node(name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// talosAt is where the API of a machine would listen.
func talosAt(a netip.Addr) string { return netip.AddrPortFrom(a, 50000).String() }

func TestTwentyMachinesWaitInMaintenanceUntilTheHostEnds(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 20)
	f.Machines[4].State = fleet.StateOff
	h, err := host.Start(host.Options{Fleet: f, Dir: t.TempDir(), Workload: fake})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	ctx, cancel := context.WithTimeout(context.Background(), hollowtest.Patience)
	defer cancel()
	for i, name := range h.Names() {
		if name != f.Machines[i].Name {
			t.Errorf("machine %d is %s, want the order of the fleet: %s", i, name, f.Machines[i].Name)
		}
		condition := node.InMaintenance
		if i == 4 {
			condition = node.IsOff
		}
		if _, err := find(t, h, name).WaitFor(ctx, condition); err != nil {
			t.Error(err)
		}
	}
	h.Close()
	for i := range f.Machines {
		c, err := net.DialTimeout("tcp", talosAt(f.Machines[i].Addr()), time.Second)
		if err == nil {
			t.Errorf("%s still listens", f.Machines[i].Name)
			_ = c.Close() // it should not be there at all
		}
	}
}

func TestAMachineThatWasSwitchedOffStaysOffWithTheNextHost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), hollowtest.Patience)
	defer cancel()
	first, err := host.Start(host.Options{Fleet: f, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if err := find(t, first, f.Machines[0].Name).PowerOff(); err != nil {
		t.Fatal(err)
	}
	first.Close()
	second, err := host.Start(host.Options{Fleet: f, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if _, err := find(t, second, f.Machines[1].Name).WaitFor(ctx, node.InMaintenance); err != nil {
		t.Error(err)
	}
	if s := find(t, second, f.Machines[0].Name).Status(); s.Powered {
		t.Error("it is on again")
	}
}

func TestNothingRunsWhenOneMachineCannotBeMade(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	refuse := func(m fleet.Machine) (workload.Factory, error) {
		if m.Name == f.Machines[1].Name {
			return nil, errors.New("no such program")
		}
		return hollowtest.FakeWorkload{}, nil
	}
	_, err := host.Start(host.Options{Fleet: f, Dir: t.TempDir(), Workload: refuse})
	if err == nil || !strings.Contains(err.Error(), f.Machines[1].Name+": no such program") {
		t.Errorf("got %v, want the machine and the reason", err)
	}
}

func TestAMachineThatIsNotInTheFleetIsUnknown(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.Machines[0].State = fleet.StateOff
	h, err := host.Start(host.Options{Fleet: f, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := h.Node("nobody"); !errors.Is(err, host.ErrUnknown) {
		t.Errorf("got %v, want %v", err, host.ErrUnknown)
	}
}
