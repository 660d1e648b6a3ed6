// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// booted is the same machine after another boot, with another certificate.
func (h *host) booted(boot string) *host {
	next := *h
	next.boot += boot
	return &next
}

// A machine behind a proxy, or in a network that translates addresses, doesn't know the address that it answers at.
func TestAMachineThatDoesntKnowAllItsAddressesStaysWhereItIs(t *testing.T) {
	for name, at := range map[string][2]string{"below": {"10.0.0.7", "10.0.0.3"}, "above": {"10.0.0.7", "10.0.0.9"}} {
		t.Run("the other address is "+name, func(t *testing.T) {
			w := newWorld(t, nil)
			a := board(uuidA, "S1", macA)
			w.put(at[0], a)
			w.scan()
			before := w.machine(uuidA)
			w.put(at[1], a)
			for range 5 {
				w.scan()
			}
			if diff := cmp.Diff(before, w.machine(uuidA)); diff != "" {
				t.Errorf("it was written though nothing about it changed (-before +after):\n%s", diff)
			}
			w.put(at[0], nil)
			w.scan()
			if got := w.machine(uuidA).Status.Addresses; !cmp.Equal(got, []string{at[1]}) {
				t.Errorf("addresses %v, want the one that is left", got)
			}
			w.unchanged()
		})
	}
}

func TestTwoMachinesThatClaimToBeOne(t *testing.T) {
	w := newWorld(t, nil)
	real, clone := board(uuidA, "S1", macA), board(uuidA, "S1", macA).booted("clone")
	w.put("10.0.0.7", real)
	w.scan()
	before := w.machine(uuidA)
	w.put("10.0.0.3", clone)
	w.scan()
	if diff := cmp.Diff(before, w.machine(uuidA)); diff != "" {
		t.Errorf("whoever claims to be a machine changed it (-before +after):\n%s", diff)
	}
	want := v1alpha1.DiscoveredHost{
		Address: "10.0.0.3", Class: v1alpha1.HostMaintenance,
		Message: "a Talos machine in maintenance mode that says it is machine " + uuidA + ", which answers at 10.0.0.7 with another certificate",
	}
	if diff := cmp.Diff(want, w.cluster().Status.Discovery.Hosts[0]); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	w.unchanged()

	w.put("10.0.0.7", real.booted("again"))
	w.scan()
	after := w.machine(uuidA)
	if after.Status.MaintenanceFingerprint != string(real.booted("again").fingerprint()) || len(after.Status.FingerprintHistory) != 2 || after.Status.Addresses[0] != "10.0.0.7" {
		t.Errorf("after the machine booted: %s at %v, history %v", after.Status.MaintenanceFingerprint, after.Status.Addresses, after.Status.FingerprintHistory)
	}
	w.unchanged()

	w.put("10.0.0.7", nil)
	w.scan()
	after = w.machine(uuidA)
	if after.Status.MaintenanceFingerprint != string(clone.fingerprint()) || !cmp.Equal(after.Status.Addresses, []string{"10.0.0.3"}) {
		t.Errorf("with nothing left at its old address: %s at %v", after.Status.MaintenanceFingerprint, after.Status.Addresses)
	}
	w.unchanged()
}

func TestMachinesThatSwapTheirAddresses(t *testing.T) {
	w := newWorld(t, nil)
	a, b := board(uuidA, "S1", macA), board(uuidB, "S2", macB)
	w.put("10.0.0.7", a)
	w.put("10.0.0.8", b)
	w.scan()
	// Talos makes a new certificate when an address changes.
	w.put("10.0.0.7", b.booted("moved"))
	w.put("10.0.0.8", a.booted("moved"))
	w.scan()
	for uuid, want := range map[string]struct {
		address string
		machine *host
	}{uuidA: {"10.0.0.8", a}, uuidB: {"10.0.0.7", b}} {
		m := w.machine(uuid)
		if !cmp.Equal(m.Status.Addresses, []string{want.address}) || m.Status.MaintenanceFingerprint != string(want.machine.booted("moved").fingerprint()) ||
			resolved(m) != "True StrongIdentity" || conditionWords(m, v1alpha1.ConditionReachable) != "True Answers" {
			t.Errorf("%s: %s at %v, %+v", uuid, m.Status.MaintenanceFingerprint, m.Status.Addresses, m.Status.Conditions)
		}
	}
	w.unchanged()
}

// The old address is another machine's by the time the first one is met again; Talos has made a new certificate for it.
func TestALeaseThatGoesToAnotherMachine(t *testing.T) {
	w := newWorld(t, nil)
	a := board(uuidA, "S1", macA)
	w.put("10.0.0.7", a)
	w.scan()
	before := w.machine(uuidA)
	w.put("10.0.0.8", a.booted("moved"))
	w.put("10.0.0.7", board(uuidB, "S2", macB))
	w.scan()
	after, newcomer := w.machine(uuidA), w.machine(uuidB)
	if after.UID != before.UID || !cmp.Equal(after.Status.Addresses, []string{"10.0.0.8"}) || conditionWords(after, v1alpha1.ConditionReachable) != "True Answers" {
		t.Errorf("the machine that moved is at %v: %+v", after.Status.Addresses, after.Status.Conditions)
	}
	if !cmp.Equal(newcomer.Status.Addresses, []string{"10.0.0.7"}) || resolved(newcomer) != "True StrongIdentity" || len(w.machines()) != 2 {
		t.Errorf("the machine at its old address is at %v, %s; machines are %v", newcomer.Status.Addresses, resolved(newcomer), w.names())
	}
	w.unchanged()
}

func TestAConfiguredMachineBehindAProxyStaysWhereItIs(t *testing.T) {
	w := newWorld(t, nil)
	a := board(uuidA, "S1", macA)
	w.put("10.0.0.7", a)
	w.scan()
	w.edit(uuidA, func(m *v1alpha1.TalosMachine) {
		approve(m)
		m.Status.Provisioning = &v1alpha1.ProvisioningStatus{AppliedAt: &metav1.Time{}}
	})
	w.put("10.0.0.7", a.configured(true))
	w.put("10.0.0.3", a.configured(true))
	w.put("10.0.0.9", a.configured(true))
	w.scan()
	if got := w.machine(uuidA).Status.Addresses; !cmp.Equal(got, []string{"10.0.0.7"}) {
		t.Errorf("addresses %v", got)
	}
	w.unchanged()
	w.put("10.0.0.7", nil)
	w.put("10.0.0.3", nil)
	w.edit(uuidA, func(m *v1alpha1.TalosMachine) {
		setCondition(m, v1alpha1.ConditionReachable, verdict{metav1.ConditionFalse, v1alpha1.ReasonUnreachable, "gone"})
	})
	w.scan()
	if got := w.machine(uuidA).Status.Addresses; !cmp.Equal(got, []string{"10.0.0.9"}) {
		t.Errorf("addresses %v, want the one that is left", got)
	}
	w.unchanged()
}

// A look that is cut off is no sign that a machine left.
func TestALookThatIsCutOffMovesNothing(t *testing.T) {
	w := newWorld(t, nil)
	a := board(uuidA, "S1", macA)
	w.put("10.0.0.7", a)
	w.scan()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.c.lookAt(ctx, w.machine(uuidA)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	seen := sighting{address: netip.MustParseAddr("10.0.0.8"), fingerprint: talos.Fingerprint("other"), facts: &a.facts}
	if _, err := w.c.place(ctx, w.cluster(), seen); err == nil || strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v", err)
	}
	if got := w.machine(uuidA).Status.Addresses; !cmp.Equal(got, []string{"10.0.0.7"}) {
		t.Errorf("addresses %v", got)
	}
}
