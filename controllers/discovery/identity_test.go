// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	macA = "02:00:5e:00:53:01"
	macB = "02:00:5e:00:53:02"
	macC = "02:00:5e:00:53:03"
)

func TestAMachineInMaintenanceIsEntered(t *testing.T) {
	w := newWorld(t, nil)
	a := board(uuidA, "S1", macA)
	w.put("10.0.0.7", a)
	w.scan()
	m := w.machine(uuidA)
	if m.Spec.ClusterRef.Name != "prod" || m.Spec.Origin != v1alpha1.MachineDiscovered || !cmp.Equal(m.Spec.Identity, a.facts.Identity) {
		t.Errorf("spec %+v", m.Spec)
	}
	want := v1alpha1.TalosMachineStatus{
		Stage: v1alpha1.StageMaintenance, Phase: v1alpha1.PhasePending, Addresses: []string{"10.0.0.7"}, Hostname: "talos-x", TalosVersion: "v1.13.9",
		Inventory: a.facts.Inventory, MaintenanceFingerprint: string(a.fingerprint()),
		FingerprintHistory: []v1alpha1.FingerprintRecord{{Fingerprint: string(a.fingerprint())}},
	}
	got := *m.Status.DeepCopy()
	if len(got.FingerprintHistory) == 1 {
		got.FingerprintHistory[0].FirstSeen = metav1.Time{}
	}
	got.Conditions = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if resolved(m) != "True StrongIdentity" || conditionWords(m, v1alpha1.ConditionReachable) != "True Answers" {
		t.Errorf("conditions %+v", m.Status.Conditions)
	}
	if events := w.events(); len(events) != 1 || !strings.Contains(events[0], "Normal Discovered found in maintenance mode at 10.0.0.7") {
		t.Errorf("events %q", events)
	}
	w.unchanged()
}

func TestBoardsWithOneJunkUUIDStayTwoMachines(t *testing.T) {
	w := newWorld(t, nil)
	w.put("10.0.0.7", board(junk, "", macA))
	w.put("10.0.0.8", board(junk, "", macB))
	w.scan()
	a, b := w.machineAt("10.0.0.7"), w.machineAt("10.0.0.8")
	if a.Name == b.Name || resolved(a) != "False UnusableUUID" || resolved(b) != "False UnusableUUID" {
		t.Fatalf("%s: %s, %s: %s", a.Name, resolved(a), b.Name, resolved(b))
	}
	for _, part := range []string{junk, macA, "10.0.0.7", "ichor machine resolve " + a.Name} {
		if !strings.Contains(message(a, v1alpha1.ConditionIdentityResolved), part) {
			t.Errorf("the condition doesn't show %q: %s", part, message(a, v1alpha1.ConditionIdentityResolved))
		}
	}
	w.unchanged()

	w.edit(a.Name, func(m *v1alpha1.TalosMachine) {
		m.Spec.IdentityResolution = &v1alpha1.IdentityResolution{Decision: v1alpha1.IdentityDistinct, By: "alice"}
	})
	w.scan()
	if got := resolved(w.machine(a.Name)); got != "True ResolvedByPerson" {
		t.Errorf("after a person's word: %s", got)
	}
	if after := w.machine(b.Name); after.ResourceVersion != b.ResourceVersion {
		t.Errorf("the other board's object changed: %s", cmp.Diff(b, after))
	}
	w.unchanged()

	w.edit(a.Name, func(m *v1alpha1.TalosMachine) { m.Spec.IdentityResolution = nil })
	w.scan()
	if got := resolved(w.machine(a.Name)); got != "False UnusableUUID" {
		t.Errorf("after the word was taken back: %s", got)
	}
}

func TestAUUIDThatALiveMachineHoldsIsDoubted(t *testing.T) {
	w := newWorld(t, nil)
	w.put("10.0.0.7", board(uuidA, "S1", macA))
	w.scan()
	first := w.machine(uuidA)
	w.put("10.0.0.8", board(uuidA, "S2", macB))
	w.scan()
	second := w.machineAt("10.0.0.8")
	if !strings.HasPrefix(second.Name, "weak-") || resolved(second) != "False UUIDHeldByOther" ||
		!strings.Contains(message(second, v1alpha1.ConditionIdentityResolved), "machine "+uuidA+" has the same UUID") {
		t.Errorf("%s: %s, %s", second.Name, resolved(second), message(second, v1alpha1.ConditionIdentityResolved))
	}
	if after := w.machine(uuidA); after.ResourceVersion != first.ResourceVersion {
		t.Errorf("the holder changed: %s", cmp.Diff(first, after))
	}
	w.unchanged()

	w.remove(uuidA)
	w.put("10.0.0.7", nil)
	w.scan()
	if text := message(w.machine(second.Name), v1alpha1.ConditionIdentityResolved); !strings.Contains(text, "delete this object to have it found again") {
		t.Errorf("with the holder gone: %s", text)
	}
	w.remove(second.Name)
	w.scan()
	if got := resolved(w.machine(uuidA)); got != "True StrongIdentity" {
		t.Errorf("found again: %s", got)
	}
}

func TestBothBoardsOfOneUUIDInTheFirstScan(t *testing.T) {
	w := newWorld(t, nil)
	for _, address := range []string{"10.0.0.7", "10.0.0.8", "10.0.0.9"} {
		w.put(address, board(uuidA, "S"+address, "02:00:5e:00:54:0"+address[len(address)-1:]))
	}
	w.scan()
	byVerdict := map[string]int{}
	for _, m := range w.machines() {
		byVerdict[resolved(m)]++
	}
	if diff := cmp.Diff(map[string]int{"True StrongIdentity": 1, "False UUIDHeldByOther": 2}, byVerdict); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	w.unchanged()
}

func TestEmptyNeverEqualsEmpty(t *testing.T) {
	w := newWorld(t, nil)
	w.put("10.0.0.7", board("", ""))
	w.put("10.0.0.8", board("", ""))
	w.put("10.0.0.9", board(uuidA, "", macA))
	w.put("10.0.0.10", board(uuidB, "", macB))
	w.scan()
	if n := len(w.machines()); n != 4 {
		t.Fatalf("%d machines: %v", n, w.names())
	}
	for address, want := range map[string]string{
		"10.0.0.7": "False UnusableUUID", "10.0.0.8": "False UnusableUUID", "10.0.0.9": "True StrongIdentity", "10.0.0.10": "True StrongIdentity",
	} {
		if got := resolved(w.machineAt(address)); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	w.unchanged()
}

func TestAMachineThatMovesStaysTheSame(t *testing.T) {
	w := newWorld(t, nil)
	a := board(uuidA, "S1", macA, macB)
	w.put("10.0.0.7", a)
	w.scan()
	before := w.machine(uuidA)
	w.put("10.0.0.7", nil)
	w.put("10.0.0.8", board(uuidA, "S1", macB, macC)) // and one of its two cards was exchanged
	w.scan()
	after := w.machine(uuidA)
	if after.UID != before.UID || len(w.machines()) != 1 || !cmp.Equal(after.Status.Addresses, []string{"10.0.0.8"}) {
		t.Errorf("machines %v, addresses %v", w.names(), after.Status.Addresses)
	}
	if got := resolved(after); got != "True StrongIdentity" {
		t.Errorf("resolved: %s", got)
	}
	w.unchanged()
}

func TestATakenAddressMovesNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.put("10.0.0.7", board(uuidA, "S1", macA))
	w.scan()
	before := w.machine(uuidA)
	w.put("10.0.0.7", board(uuidB, "S2", macB))
	w.scan()
	after := w.machine(uuidA)
	if diff := cmp.Diff(before.Status.Addresses, after.Status.Addresses); diff != "" || after.Status.MaintenanceFingerprint != before.Status.MaintenanceFingerprint {
		t.Errorf("the first machine took something from the other (-before +after):\n%s", diff)
	}
	if got := conditionWords(after, v1alpha1.ConditionReachable); got != "False Unreachable" {
		t.Errorf("the first machine: %s", got)
	}
	if got := resolved(w.machine(uuidB)); got != "True StrongIdentity" {
		t.Errorf("the other machine: %s", got)
	}
	w.unchanged()
}

func TestAnExchangedBoardIsDoubtedAndNamesTheOldOne(t *testing.T) {
	for name, tc := range map[string]struct {
		second *host
		reason string
	}{
		"UUID and card changed, serial the same": {board(uuidB, "S1", macB), v1alpha1.ReasonSerialHeldByOther},
		"a card moved to another board":          {board(uuidB, "S2", macA), reasonMACHeldByOther},
		"all cards exchanged":                    {board(uuidA, "S1", macB), v1alpha1.ReasonUUIDHeldByOther},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.put("10.0.0.7", board(uuidA, "S1", macA))
			w.scan()
			w.put("10.0.0.7", nil)
			w.put("10.0.0.8", tc.second)
			w.scan()
			m := w.machineAt("10.0.0.8")
			if resolved(m) != "False "+tc.reason || !strings.Contains(message(m, v1alpha1.ConditionIdentityResolved), "machine "+uuidA+" has") {
				t.Errorf("%s: %s, %s", m.Name, resolved(m), message(m, v1alpha1.ConditionIdentityResolved))
			}
			if m.Spec.ApprovalState != v1alpha1.ApprovalPending || resolved(w.machine(uuidA)) != "True StrongIdentity" {
				t.Errorf("%s is %s, the old one %s", m.Name, m.Spec.ApprovalState, resolved(w.machine(uuidA)))
			}
			w.unchanged()

			w.remove(uuidA)
			w.scan()
			if want := "True StrongIdentity"; tc.reason != v1alpha1.ReasonUUIDHeldByOther && resolved(w.machine(m.Name)) != want {
				t.Errorf("with the old one gone: %s, want %s", resolved(w.machine(m.Name)), want)
			}
		})
	}
}

func TestAPersonSaysThatItIsTheSame(t *testing.T) {
	w := newWorld(t, nil)
	w.put("10.0.0.7", board(uuidA, "S1", macA))
	w.scan()
	w.put("10.0.0.7", nil)
	swapped := board(uuidA, "S1", macB)
	w.put("10.0.0.8", swapped)
	w.scan()
	newcomer := w.machineAt("10.0.0.8")
	w.edit(newcomer.Name, func(m *v1alpha1.TalosMachine) {
		m.Spec.IdentityResolution = &v1alpha1.IdentityResolution{Decision: v1alpha1.IdentitySameAs, Machine: uuidA, By: "alice"}
	})
	w.judgeAll()
	if names := w.names(); !cmp.Equal(names, []string{uuidA}) {
		t.Fatalf("machines %v", names)
	}
	m := w.machine(uuidA)
	if !cmp.Equal(m.Status.Addresses, []string{"10.0.0.8"}) || m.Status.MaintenanceFingerprint != string(swapped.fingerprint()) || resolved(m) != "True ResolvedByPerson" {
		t.Errorf("addresses %v, fingerprint %s, %s", m.Status.Addresses, m.Status.MaintenanceFingerprint, resolved(m))
	}
	w.scan()
	if names := w.names(); !cmp.Equal(names, []string{uuidA}) {
		t.Errorf("found again as another machine: %v", names)
	}
	w.unchanged()

	// Another board that is less like it than the one that a person meant stays another.
	w.put("10.0.0.9", board(uuidA, "S1", macC))
	w.scan()
	if got := resolved(w.machineAt("10.0.0.9")); got != "False UUIDHeldByOther" {
		t.Errorf("a third board: %s", got)
	}
}

func TestAPersonSaysThatItIsTheSameAsAMachineThatIsGone(t *testing.T) {
	w := newWorld(t, nil)
	w.put("10.0.0.7", board(junk, "", macA))
	w.scan()
	name := w.machineAt("10.0.0.7").Name
	w.edit(name, func(m *v1alpha1.TalosMachine) {
		m.Spec.IdentityResolution = &v1alpha1.IdentityResolution{Decision: v1alpha1.IdentitySameAs, Machine: uuidA, By: "alice"}
	})
	w.scan()
	if m := w.machine(name); resolved(m) != "False "+reasonTargetMissing || !strings.Contains(message(m, v1alpha1.ConditionIdentityResolved), "resolve it anew") {
		t.Errorf("%s: %s", resolved(m), message(m, v1alpha1.ConditionIdentityResolved))
	}
}

func TestAMachineAtTwoAddressesIsOne(t *testing.T) {
	w := newWorld(t, nil)
	a := board(uuidA, "S1", macA)
	a.facts.Addresses = []string{"10.0.0.7", "10.0.0.8"}
	w.put("10.0.0.7", a)
	w.put("10.0.0.8", a)
	w.scan()
	first := w.machine(uuidA).Status.Addresses[0]
	for range 5 {
		w.unchanged()
	}
	w.put(first, nil)
	w.scan()
	w.scan() // the silence may be noticed after the other address answered
	if now := w.machine(uuidA).Status.Addresses[0]; now == first {
		t.Errorf("the machine is still to be dialled at %s, where nothing answers", now)
	}
	w.unchanged()
}

func TestABoardWithoutFirmwareTablesIsWaitedFor(t *testing.T) {
	w := newWorld(t, nil)
	a := board("", "", macA)
	a.facts.FirmwareRead = false
	w.put("10.0.0.7", a)
	w.scan()
	if len(w.machines()) != 0 {
		t.Fatalf("entered at once: %v", w.names())
	}
	want := []v1alpha1.DiscoveredHost{
		{Address: "10.0.0.7", Class: v1alpha1.HostMaintenance, Message: "a Talos machine in maintenance mode that has not read its hardware yet"},
		{Address: "10.0.9.7", Class: v1alpha1.HostUnreachable, Message: "no answer"},
	}
	if diff := cmp.Diff(want, w.cluster().Status.Discovery.Hosts); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	w.unchanged()
	seen := sighting{address: netip.MustParseAddr("10.0.0.7"), fingerprint: a.fingerprint(), facts: &a.facts}
	if !w.c.patience.enough(seen, time.Now().Add(firmwarePatience+time.Minute)) {
		t.Error("a board without tables is waited for without end")
	}
}
