// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// machines are the invariants of each machine: its identity is its name and never changes, no other live machine shares
// it, an approval says who and when and binds to the certificate that was shown, and is never taken back.
type machines struct {
	now map[string]*v1alpha1.TalosMachine // by key
	mac map[string]string                 // MAC → key
}

func newMachines() machines {
	return machines{now: map[string]*v1alpha1.TalosMachine{}, mac: map[string]string{}}
}

func (s *machines) see(e Event) []string {
	name, found := strings.CutPrefix(e.Key, "talosmachines/")
	if !found {
		return nil
	}
	before := s.now[e.Key]
	if before != nil {
		for _, mac := range before.Spec.Identity.MACAddresses {
			delete(s.mac, mac)
		}
	}
	if e.Value == nil {
		delete(s.now, e.Key)
		return nil
	}
	m := &v1alpha1.TalosMachine{}
	if err := json.Unmarshal(e.Value, m); err != nil {
		return []string{fmt.Sprintf("%s: %v", e.Key, err)}
	}
	s.now[e.Key] = m
	var out []string
	if m.Spec.Identity.UUID != name {
		out = append(out, fmt.Sprintf("%s has the UUID %s", e.Key, m.Spec.Identity.UUID))
	}
	for _, mac := range m.Spec.Identity.MACAddresses {
		if other, taken := s.mac[mac]; taken {
			out = append(out, fmt.Sprintf("%s and %s have the MAC address %s", e.Key, other, mac))
		}
		s.mac[mac] = e.Key
	}
	return append(out, decided(e.Key, before, m)...)
}

// decided holds a machine against itself one revision before.
func decided(key string, before, m *v1alpha1.TalosMachine) []string {
	var out []string
	approved := m.Spec.ApprovalState == v1alpha1.ApprovalApproved
	same := before != nil && before.UID == m.UID
	if same && !reflect.DeepEqual(before.Spec.Identity, m.Spec.Identity) {
		out = append(out, fmt.Sprintf("%s changes its identity from %+v to %+v", key, before.Spec.Identity, m.Spec.Identity))
	}
	was := same && before.Spec.ApprovalState == v1alpha1.ApprovalApproved
	if approved && (m.Spec.Approval == nil || m.Spec.Approval.By == "" || m.Spec.Approval.At == nil) {
		out = append(out, fmt.Sprintf("%s is approved by nobody: %+v", key, m.Spec.Approval))
	}
	switch {
	case was && (!approved || before.Spec.Role != m.Spec.Role):
		out = append(out, fmt.Sprintf("%s was approved as %s and is %s as %s", key, before.Spec.Role, m.Spec.ApprovalState, m.Spec.Role))
	case approved && !was && (before == nil || before.UID != m.UID):
		out = append(out, key+" is approved from the start")
	case approved && !was && m.Spec.Approval != nil && m.Spec.Approval.MaintenanceFingerprint != before.Status.MaintenanceFingerprint:
		out = append(out, fmt.Sprintf("%s is approved with the certificate %q, and presented %q", key, m.Spec.Approval.MaintenanceFingerprint, before.Status.MaintenanceFingerprint))
	}
	return out
}
