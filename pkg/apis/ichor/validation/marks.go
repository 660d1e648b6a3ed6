// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"net/netip"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/identity"
)

// Marks of a machine are by what another machine's approval can collide with it, as texts for an index: whoever shares
// no mark with what is approved (ApprovalMarks) is nothing to it. ApprovalFacts.Others needs no others.
func Marks(machine *ichor.TalosMachine) []string {
	var marks []string
	for address := range addressesOf(machine) {
		marks = append(marks, addressMark(address))
	}
	if machine.Spec.ApprovalState != ichor.ApprovalApproved {
		return marks
	}
	marks = append(marks, identityMark(machine))
	names := []string{machine.Spec.Hostname}
	if machine.Spec.Hostname == "" {
		names = []string{machine.Status.Hostname, machine.Status.NodeName}
	}
	for _, name := range names {
		if name != "" {
			marks = append(marks, hostnameMark(machine, name))
		}
	}
	return marks
}

// ApprovalMarks are the marks that a machine would collide with if it were approved as it is.
func ApprovalMarks(machine *ichor.TalosMachine) []string {
	marks := []string{identityMark(machine)}
	if hostname := machine.Spec.Hostname; hostname != "" {
		marks = append(marks, hostnameMark(machine, hostname))
	}
	if network := machine.Spec.Network; network != nil {
		for _, text := range network.Addresses {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				marks = append(marks, addressMark(prefix.Addr()))
			}
		}
	}
	return marks
}

// identityMark is the UUID: machines with different ones are never the same (identity.SameMachine).
func identityMark(machine *ichor.TalosMachine) string {
	return "uuid/" + identity.Normalize(identity.Identity(machine.Spec.Identity)).UUID
}

func hostnameMark(machine *ichor.TalosMachine, hostname string) string {
	return "hostname/" + machine.Spec.ClusterRef.Name + "/" + hostname
}

func addressMark(address netip.Addr) string { return "address/" + address.String() }

// addressesOf are the addresses that a machine has or will have.
func addressesOf(machine *ichor.TalosMachine) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, text := range machine.Status.Addresses {
		if address, err := netip.ParseAddr(text); err == nil {
			out[address] = true
		}
	}
	if machine.Spec.Network == nil {
		return out
	}
	for _, text := range machine.Spec.Network.Addresses {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			out[prefix.Addr()] = true
		}
	}
	return out
}
