// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/odd"
)

// oddServers are what a scan meets in real networks where a machine could be.
var oddServers = []struct {
	name  string
	start func(netip.AddrPort) (io.Closer, error)
}{
	{"an ssh server", odd.SSH},
	{"a web server", odd.HTTP},
	{"a web server with TLS and without h2", odd.TLSWithoutH2},
	{"a gRPC server", odd.GRPC},
	{"a peer that says nothing", odd.Silent},
	{"a peer that hangs in the handshake", odd.HalfTLS},
	{"a peer that never stops talking", odd.Flood},
}

// startOddServers puts them where no machine is, and returns what is where.
func startOddServers(t *testing.T, subnet netip.Prefix) map[string]string {
	t.Helper()
	first := subnet.Addr().As4()
	first[3] = 200
	address := netip.AddrFrom4(first)
	out := map[string]string{}
	for _, server := range oddServers {
		running, err := server.start(netip.AddrPortFrom(address, 50000))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := running.Close(); err != nil {
				t.Error(err)
			}
		})
		out[address.String()] = server.name
		address = address.Next()
	}
	return out
}

// scannedNetwork scans the /24 of the fleet with odd servers between the machines. An address where nothing listens
// isn't odd and isn't listed.
func scannedNetwork(t *testing.T, s *suite) {
	cidr := s.cluster(t).Spec.Discovery.Subnets[0].CIDR
	subnet := netip.MustParsePrefix(cidr)
	if subnet.Bits() != 24 {
		t.Fatalf("the stack scans %s, want a /24", cidr)
	}
	odd := startOddServers(t, subnet)
	s.scan(t)

	want := map[string]v1alpha1.HostClass{}
	for address := range odd {
		want[address] = v1alpha1.HostNotTalos
	}
	want[s.foreign(t).Addr().String()] = v1alpha1.HostAlreadyConfigured
	cluster := s.cluster(t)
	got := map[string]v1alpha1.HostClass{}
	for _, host := range cluster.Status.Discovery.Hosts {
		got[host.Address] = host.Class
		t.Logf("%s (%s): %s, %s", host.Address, odd[host.Address], host.Class, host.Message)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("odd hosts (-want +got):\n%s", diff)
	}
	waiting := 0
	for i := range s.stack.Fleet().Machines {
		if s.stack.Fleet().Machines[i].State == fleet.StateForeign {
			continue
		}
		m := s.at(t, s.stack.Fleet().Machines[i].Addr())
		if m.Spec.ApprovalState != v1alpha1.ApprovalPending {
			continue
		}
		waiting++
		if hardware := s.hardware(t, m); m.Spec.Identity.SerialNumber != hardware.SerialNumber || len(m.Status.Inventory.Disks) != len(hardware.Disks) {
			t.Errorf("machine %s: %+v with %d disks; the fleet has %s with %d", m.Name, m.Spec.Identity, len(m.Status.Inventory.Disks), hardware.SerialNumber, len(hardware.Disks))
		}
	}
	if waiting < 10 || cluster.Status.Discovery.Maintenance != int32(waiting) {
		t.Errorf("%d machines wait, the scan counts %d; want ten or more, and the same", waiting, cluster.Status.Discovery.Maintenance)
	}
	s.expectQuiet(t)
}

// expectQuiet checks that scans of a network that doesn't change write nothing: not by asking for one (which changes the
// cluster), but by letting the controller scan in its own time.
func (s *suite) expectQuiet(t *testing.T) {
	t.Helper()
	before := s.versions(t)
	contacts := s.contacts(t)
	// A scan connects to each machine once or twice.
	eventually(t, 2*time.Minute, func() error { return moreContacts(contacts, s.contacts(t), 5) })
	if diff := cmp.Diff(before, s.versions(t)); diff != "" {
		t.Errorf("resourceVersions moved though nothing did (-before +after):\n%s", diff)
	}
}

// versions are the resourceVersions of everything of Ichor.
func (s *suite) versions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	list, err := s.admin.IchorV1alpha1().TalosMachines().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Items {
		out[m.Name] = m.ResourceVersion
	}
	out["cluster"] = s.cluster(t).ResourceVersion
	return out
}
