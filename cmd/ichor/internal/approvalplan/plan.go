// SPDX-License-Identifier: Apache-2.0

package approvalplan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/proposal"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Facts are what a plan is judged by.
type Facts struct {
	Machines []v1alpha1.TalosMachine
	Clusters []v1alpha1.TalosCluster
	// Blocked says why a machine can't be approved, whatever is decided; nil if it can, or is approved already.
	Blocked func(*v1alpha1.TalosMachine) error
}

// Target is an entry with its machine.
type Target struct {
	*Item
	Machine  *v1alpha1.TalosMachine
	Decision proposal.Decision
	// Unchanged is true for a machine that was approved as the plan says.
	Unchanged bool
}

// Plan finds each entry's machine and works out what it becomes. Everything that is wrong is told at once; the targets
// mean something only if nothing is.
func Plan(items []*Item, facts Facts) ([]Target, []*Fault) {
	var targets []Target
	var faults []*Fault
	first := map[string]*Item{}
	for _, item := range items {
		machine, bad := item.match(facts.Machines)
		if len(bad) > 0 {
			faults = append(faults, bad...)
			continue
		}
		if before := first[machine.Name]; before != nil {
			faults = append(faults, item.Fault(cli.ExitUsage, "", fmt.Sprintf("is machine %s, which the entry at %s is about already", tell(machine), before.Position(""))))
			continue
		}
		first[machine.Name] = item
		target, bad := item.target(machine, facts)
		targets, faults = append(targets, target), append(faults, bad...)
	}
	faults = append(faults, doubled(targets)...)
	return targets, append(faults, capacity(targets, facts)...)
}

// target works out what becomes of an entry's machine.
func (i *Item) target(machine *v1alpha1.TalosMachine, facts Facts) (Target, []*Fault) {
	target := Target{Item: i, Machine: machine}
	if err := facts.Blocked(machine); err != nil {
		return target, []*Fault{i.Fault(cli.ExitBlocked, "", err.Error())}
	}
	if machine.Spec.ApprovalState == v1alpha1.ApprovalApproved {
		target.Decision, target.Unchanged = proposal.Current(machine), true
		var faults []*Fault
		for _, difference := range i.differences(machine) {
			faults = append(faults, i.Fault(cli.ExitBlocked, difference.field, difference.what))
		}
		return target, faults
	}
	var faults []*Fault
	target.Decision, faults = i.decide(machine, facts)
	return target, faults
}

// doubled finds hostnames and addresses that two entries give. The server finds those of other machines.
func doubled(targets []Target) []*Fault {
	var faults []*Fault
	first := map[string]*Item{}
	once := func(item *Item, field, what, key string) {
		if before := first[key]; before != nil && before != item {
			faults = append(faults, item.Fault(cli.ExitUsage, field, fmt.Sprintf("%s is given to %s at %s too", what, before.Label(), before.Position(field))))
			return
		}
		first[key] = item
	}
	for _, target := range targets {
		if hostname := target.Decision.Hostname; hostname != "" {
			once(target.Item, "hostname", fmt.Sprintf("%q", hostname), "hostname "+target.Decision.Cluster+"/"+strings.ToLower(hostname))
		}
		if target.Decision.Network == nil {
			continue
		}
		for n, text := range target.Decision.Network.Addresses {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				once(target.Item, fmt.Sprintf("network.addresses[%d]", n), text, "address "+prefix.Addr().Unmap().String())
			}
		}
	}
	return faults
}

// capacity counts the control planes that the whole plan makes. The server is asked about one machine at a time, and has
// room for each alone.
func capacity(targets []Target, facts Facts) []*Fault {
	var faults []*Fault
	for n := range facts.Clusters {
		cluster := &facts.Clusters[n]
		var fresh []Target
		held := int(cluster.Status.ControlPlanes.Approved)
		for _, target := range targets {
			if target.Unchanged || target.Decision.Role != v1alpha1.RoleControlPlane || target.Decision.Cluster != cluster.Name {
				continue
			}
			fresh = append(fresh, target)
			// An approval that was cut short left a slot, which this machine takes again.
			if slices.ContainsFunc(cluster.Status.ControlPlaneSlots, func(slot v1alpha1.ControlPlaneSlot) bool { return slot.MachineUID == target.Machine.UID }) {
				held--
			}
		}
		limit := int(cluster.Status.ControlPlanes.Limit)
		if limit == 0 {
			limit = int(cluster.Spec.ControlPlane.Count) + 1
		}
		room := max(limit-held, 0)
		if len(fresh) <= room {
			continue
		}
		faults = append(faults, fresh[room].Fault(cli.ExitBlocked, "role", fmt.Sprintf(
			"the plan makes %d control planes of cluster %q, which has %d of at most %d: there is room for %d; make workers of the others, remove a control plane, or raise spec.controlPlane.count (%d, and one more while one is replaced)",
			len(fresh), cluster.Name, held, limit, room, cluster.Spec.ControlPlane.Count)))
	}
	return faults
}

func (f Facts) cluster(name string) *v1alpha1.TalosCluster {
	for n := range f.Clusters {
		if f.Clusters[n].Name == name {
			return &f.Clusters[n]
		}
	}
	return nil
}

func (f Facts) clusterNames() []string {
	names := make([]string, 0, len(f.Clusters))
	for n := range f.Clusters {
		names = append(names, f.Clusters[n].Name)
	}
	return names
}

// elsewhere tells in which other machine a disk is, for those who mixed two lines of a list up.
func (f Facts) elsewhere(match v1alpha1.DiskMatch, machine *v1alpha1.TalosMachine) string {
	for n := range f.Machines {
		other := &f.Machines[n]
		if other.Name == machine.Name {
			continue
		}
		if _, err := proposal.ResolveDisk(other.Status.Inventory, match); err == nil {
			return "; machine " + tell(other) + " has one"
		}
	}
	return ""
}
