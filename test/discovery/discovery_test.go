// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

func TestWhatHappensToMachinesOverTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 24)
	entry := w.rack.Machine()
	n := w.rack.Start(entry)
	hollowtest.Wait(t, n, node.InMaintenance)
	name := strings.ToLower(entry.UUID)
	w.search()
	first := w.machines()[name]

	n.NewCertificate()
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.Fingerprint != first.Status.MaintenanceFingerprint })
	w.scan("another certificate")
	m := w.machines()[name]
	if m.Status.MaintenanceFingerprint != n.Status().Fingerprint || len(m.Status.FingerprintHistory) != 2 {
		t.Errorf("fingerprint %s, history %v", m.Status.MaintenanceFingerprint, m.Status.FingerprintHistory)
	}

	moved := w.rack.Addr()
	if err := n.ChangeAddress(netip.PrefixFrom(moved, 24)); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return node.InMaintenance(s) && s.Address == moved })
	w.scan("another address")
	if m = w.machines()[name]; m.UID != first.UID || m.Status.Addresses[0] != moved.String() || len(w.machines()) != 1 {
		t.Errorf("addresses %v of %d machines", m.Status.Addresses, len(w.machines()))
	}

	if err := n.SwapNIC(entry.Links[0].Name, "02:00:5e:99:00:01"); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, node.InMaintenance)
	twin := w.rack.Machine()
	twin.UUID = entry.UUID
	other := w.rack.Start(twin)
	hollowtest.Wait(t, other, node.InMaintenance)
	w.scan("a board with its UUID")
	doubtful := 0
	for _, m := range w.machines() {
		condition := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionIdentityResolved)
		if condition.Status == metav1.ConditionFalse {
			doubtful++
			if condition.Reason != v1alpha1.ReasonUUIDHeldByOther || !strings.Contains(condition.Message, name) {
				t.Errorf("%s: %s, %s", m.Name, condition.Reason, condition.Message)
			}
		}
	}
	if want := len(w.machines()) - 1; doubtful != want || want == 0 {
		t.Errorf("%d of %d machines are doubted, want all but the first", doubtful, len(w.machines()))
	}

	if err := n.PowerOff(); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, node.IsOff)
	w.scan("switched off")
	if m = w.machines()[name]; !meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionReachable) {
		t.Errorf("conditions %+v", m.Status.Conditions)
	}
}
