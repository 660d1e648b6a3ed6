// SPDX-License-Identifier: Apache-2.0

package proposal

import (
	"fmt"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Facts are what a proposal rests on.
type Facts struct {
	Machine *v1alpha1.TalosMachine
	// Cluster that the machine is to join.
	Cluster *v1alpha1.TalosCluster
	// Machines are all that are known, the machine itself among them.
	Machines []v1alpha1.TalosMachine
}

// Proposal is the sensible choice for each question.
type Proposal struct {
	Decision
	// NoSystemDisk says why no install disk is proposed; empty if one is.
	NoSystemDisk string
	// Candidates are the disks that Talos may sensibly be installed on.
	Candidates []Disk
}

// Propose works out the sensible choices for a machine.
func Propose(facts Facts) Proposal {
	proposal := Proposal{Decision: Decision{Cluster: facts.Machine.Spec.ClusterRef.Name}}
	if facts.Cluster != nil {
		proposal.Cluster = facts.Cluster.Name
	}
	proposal.Role = Role(facts.Cluster, facts.Machines)
	proposal.Hostname = Hostname(proposal.Role, facts.Machines)
	if facts.Machine.Spec.Origin == v1alpha1.MachineAdopted {
		return adopted(facts, proposal)
	}
	for _, disk := range Disks(facts.Machine.Status.Inventory) {
		if disk.Objection == "" {
			proposal.Candidates = append(proposal.Candidates, disk)
		}
	}
	switch len(proposal.Candidates) {
	case 1:
		proposal.Disks = []v1alpha1.MachineDisk{{Match: proposal.Candidates[0].Match, Role: v1alpha1.DiskSystem}}
	case 0:
		proposal.NoSystemDisk = "no disk is fit for it"
	default:
		proposal.NoSystemDisk = fmt.Sprintf("%d disks are fit for it: %s", len(proposal.Candidates), listDisks(proposal.Candidates))
	}
	return proposal
}

// adopted keeps what a running machine is, because approving it must change nothing on it.
func adopted(facts Facts, proposal Proposal) Proposal {
	current := Current(facts.Machine)
	current.Cluster = proposal.Cluster
	if current.Role == "" {
		current.Role = proposal.Role
	}
	if current.Hostname == "" {
		current.Hostname = facts.Machine.Status.Hostname
	}
	if disk := facts.Machine.Status.SystemDisk; disk != nil && len(current.Disks) == 0 {
		match := v1alpha1.DiskMatch{Serial: disk.Serial}
		if disk.Serial == "" {
			match = v1alpha1.DiskMatch{WWID: disk.WWID}
		}
		if match != (v1alpha1.DiskMatch{}) {
			current.Disks = []v1alpha1.MachineDisk{{Match: match, Role: v1alpha1.DiskSystem}}
		}
	}
	proposal.Decision = current
	return proposal
}
