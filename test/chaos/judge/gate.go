// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"fmt"
	"strings"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// gate is the invariant of the control planes: in no revision more of them are approved than the limit of that revision,
// each holds a slot, and no two have one hostname.
type gate struct {
	approved map[string]holder // by key
	held     map[string]string // UID → hostname
	limit    int
	moves    int
}

type holder struct{ uid, hostname string }

func newGate() gate { return gate{approved: map[string]holder{}, held: map[string]string{}} }

func (g *gate) see(e Event) []string {
	switch {
	case strings.HasPrefix(e.Key, "talosmachines/"):
		delete(g.approved, e.Key)
		var m v1alpha1.TalosMachine
		if e.Value != nil && json.Unmarshal(e.Value, &m) == nil && m.Spec.ApprovalState == v1alpha1.ApprovalApproved && m.Spec.Role == v1alpha1.RoleControlPlane {
			g.approved[e.Key] = holder{string(m.UID), m.Spec.Hostname}
		}
	case strings.HasPrefix(e.Key, "talosclusters/") && e.Value != nil:
		var c v1alpha1.TalosCluster
		if err := json.Unmarshal(e.Value, &c); err != nil {
			return []string{err.Error()}
		}
		clear(g.held)
		for _, slot := range c.Status.ControlPlaneSlots {
			g.held[string(slot.MachineUID)] = slot.Hostname
		}
		if limit := int(c.Spec.ControlPlane.Count) + 1; limit != g.limit {
			g.limit = limit
			g.moves++
		}
	default:
		return nil
	}
	return g.faults()
}

func (g *gate) faults() []string {
	var out []string
	if g.limit > 0 && (len(g.approved) > g.limit || len(g.held) > g.limit) {
		out = append(out, fmt.Sprintf("%d control planes are approved, %d slots held, the limit is %d", len(g.approved), len(g.held), g.limit))
	}
	hostnames := map[string]string{}
	for key, h := range g.approved {
		if hostname, holds := g.held[h.uid]; !holds || hostname != h.hostname {
			out = append(out, fmt.Sprintf("%s with UID %s is approved as %q; it holds a slot: %t, as %q", key, h.uid, h.hostname, holds, hostname))
		}
		if other, taken := hostnames[h.hostname]; taken && h.hostname != "" {
			out = append(out, fmt.Sprintf("%s and %s have the hostname %s", key, other, h.hostname))
		}
		hostnames[h.hostname] = key
	}
	return out
}
