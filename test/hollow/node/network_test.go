// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"crypto/tls"
	"net/netip"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

// Talos' own listener is open on every address of the machine, with one certificate.
func TestAMachineAnswersAtAllItsAddresses(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	m := rack.Machine()
	n := rack.Start(m)
	before := hollowtest.Wait(t, n, node.InMaintenance)
	virtual := netip.PrefixFrom(rack.Addr(), 32)
	if err := n.AlsoAt(virtual); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return node.InMaintenance(s) && s.Fingerprint != before.Fingerprint })
	for _, address := range []netip.Addr{n.Address(), virtual.Addr()} {
		// Nothing verifies: a machine in maintenance mode signs its own certificate, and who answers is what is asked.
		c := hollowtest.Dial(t, address, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
		system, err := safe.StateGetByID[*hardware.SystemInformation](patient(t), c.COSI, hardware.SystemInformationID)
		if err != nil {
			t.Fatalf("at %s: %v", address, err)
		}
		if got := system.TypedSpec().UUID; got != m.UUID {
			t.Errorf("at %s answers %s, want %s", address, got, m.UUID)
		}
		addresses, err := safe.StateGetByID[*network.NodeAddress](patient(t), c.COSI, network.NodeAddressCurrentID)
		if err != nil {
			t.Fatal(err)
		}
		if got := addresses.TypedSpec().IPs(); len(got) != 2 || got[1] != virtual.Addr() {
			t.Errorf("the machine says its addresses are %v", got)
		}
	}
}

func TestARequestThatWasCutOffTakesNoEffect(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	m := rack.Machine()
	n := rack.Start(m)
	before := hollowtest.Wait(t, n, node.InMaintenance)
	n.CutApply()
	request := &machine.ApplyConfigurationRequest{Data: hollowtest.NewCluster(t, m.Addr(), m.Disks[0].Device).Config(machinetype.TypeControlPlane)}
	_, err := hollowtest.Insecure(t, n).ApplyConfiguration(patient(t), request)
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
	if s := n.Status(); s.Applies != 0 || !node.InMaintenance(s) || s.Fingerprint != before.Fingerprint {
		t.Errorf("the machine is no longer what it was: %+v", s)
	}
	if _, err := hollowtest.Insecure(t, n).ApplyConfiguration(patient(t), request); err != nil {
		t.Errorf("the next one: %v", err)
	}
}
