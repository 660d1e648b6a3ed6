// SPDX-License-Identifier: Apache-2.0

package proposal

import (
	"slices"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Sequence is for proposals about one machine after another: what was decided about those before counts as if it were
// stored. So the proposals make sense together: the control planes that are missing, then workers, each with a hostname
// of its own.
type Sequence struct {
	machines []v1alpha1.TalosMachine
	at       map[string]int
}

// NewSequence starts from the machines that are known.
func NewSequence(machines []v1alpha1.TalosMachine) *Sequence {
	sequence := &Sequence{machines: slices.Clone(machines), at: make(map[string]int, len(machines))}
	for n := range machines {
		sequence.at[machines[n].Name] = n
	}
	return sequence
}

// Facts are what the next proposal rests on.
func (s *Sequence) Facts(machine *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster) Facts {
	return Facts{Machine: machine, Cluster: cluster, Machines: s.machines}
}

// Decided takes in what was decided about a machine.
func (s *Sequence) Decided(machine *v1alpha1.TalosMachine, decision Decision) {
	n, known := s.at[machine.Name]
	if !known {
		return
	}
	spec := &s.machines[n].Spec // a copy: nothing of it is shared with the machine itself but what it points to
	spec.ApprovalState, spec.ClusterRef.Name, spec.Role, spec.Hostname, spec.Network = v1alpha1.ApprovalApproved, decision.Cluster, decision.Role, decision.Hostname, decision.Network
}
