// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

const (
	// maxFingerprints is how many fingerprints are remembered.
	maxFingerprints = 8
	// maxAddresses is how many addresses of a configured machine are remembered.
	maxAddresses = 16
)

// sighting is a machine that was met in maintenance mode.
type sighting struct {
	address     netip.Addr
	fingerprint talos.Fingerprint
	facts       *talos.Facts
}

// observe writes what was seen into a machine's status. A machine that was, or may have been, configured is the machine
// controller's: it is told of the certificate and of one more address to look at, and decides. What it decides by is left
// alone, as whoever is in maintenance mode can claim to be any machine.
func observe(m *v1alpha1.TalosMachine, seen sighting, where whereabouts, others []*v1alpha1.TalosMachine, now time.Time) {
	status, facts := &m.Status, seen.facts
	if where != claimedHere {
		noteFingerprint(status, seen.fingerprint, now)
	}
	if sent(m) {
		alsoAt(status, seen.address.String())
		return
	}
	if facts.Inventory != nil {
		status.Inventory = facts.Inventory.DeepCopy()
	}
	if where == movedHere {
		status.Addresses = inOrder(facts.Addresses)
	}
	status.Stage = facts.Stage.Stage
	status.Hostname = facts.Hostname
	status.TalosVersion = facts.TalosVersion
	status.SchematicID = facts.SchematicID
	if m.Spec.ApprovalState == v1alpha1.ApprovalApproved {
		return
	}
	status.SystemDisk = facts.SystemDisk.DeepCopy()
	if status.Phase == "" {
		status.Phase = v1alpha1.PhasePending
	}
	setCondition(m, v1alpha1.ConditionReachable, verdict{metav1.ConditionTrue, v1alpha1.ReasonAnswers, "the machine answers in maintenance mode"})
	setCondition(m, v1alpha1.ConditionIdentityResolved, judge(m, others))
}

// missed writes that a machine that waits for a person was not found by a scan.
func missed(m *v1alpha1.TalosMachine) {
	setCondition(m, v1alpha1.ConditionReachable, verdict{
		metav1.ConditionFalse, v1alpha1.ReasonUnreachable, "the machine was not found in maintenance mode when it was last looked for",
	})
}

// waits tells whether discovery alone keeps an object current: a machine that it found and that nobody has approved.
func waits(m *v1alpha1.TalosMachine) bool {
	return m.DeletionTimestamp == nil && m.Spec.Origin != v1alpha1.MachineAdopted && m.Spec.ApprovalState != v1alpha1.ApprovalApproved
}

// sent tells whether a configuration was, or may have been, sent to the machine.
func sent(m *v1alpha1.TalosMachine) bool {
	record, config := m.Status.Provisioning, m.Status.Config
	return m.Spec.Origin == v1alpha1.MachineAdopted || config != nil && config.AppliedHash != "" ||
		record != nil && (record.IntendedAt != nil || record.AppliedAt != nil)
}

// noteFingerprint remembers the certificate that was seen. The history has each once, the latest first, with the time it
// was first seen.
func noteFingerprint(status *v1alpha1.TalosMachineStatus, fingerprint talos.Fingerprint, now time.Time) {
	text := string(fingerprint)
	status.MaintenanceFingerprint = text
	if len(status.FingerprintHistory) > 0 && status.FingerprintHistory[0].Fingerprint == text {
		return
	}
	record := v1alpha1.FingerprintRecord{Fingerprint: text, FirstSeen: metav1.NewTime(now.Truncate(time.Second))}
	history := []v1alpha1.FingerprintRecord{record}
	for _, earlier := range status.FingerprintHistory {
		if earlier.Fingerprint == text {
			history[0].FirstSeen = earlier.FirstSeen
			continue
		}
		history = append(history, earlier)
	}
	status.FingerprintHistory = history[:min(len(history), maxFingerprints)]
}

// alsoAt adds an address to a configured machine's, at the end. When there are too many, the last gives way: those before
// it are the machine's own.
func alsoAt(status *v1alpha1.TalosMachineStatus, address string) {
	if slices.Contains(status.Addresses, address) {
		return
	}
	known := status.Addresses[:min(len(status.Addresses), maxAddresses-1)]
	status.Addresses = append(slices.Clone(known), address)
}

// inOrder sorts all addresses but the first, so that the order doesn't tell where the machine was reached.
func inOrder(addresses []string) []string {
	if len(addresses) == 0 {
		return nil
	}
	out := slices.Clone(addresses)
	slices.SortFunc(out[1:], func(a, b string) int {
		x, _ := netip.ParseAddr(a)
		y, _ := netip.ParseAddr(b)
		return x.Compare(y)
	})
	return out
}

// setCondition writes a condition; its time moves with its status only.
func setCondition(m *v1alpha1.TalosMachine, kind string, v verdict) {
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: kind, Status: v.status, Reason: v.reason, Message: v.message, ObservedGeneration: m.Generation,
	})
}
