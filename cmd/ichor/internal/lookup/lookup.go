// SPDX-License-Identifier: Apache-2.0

// Package lookup finds the machine or cluster that a person means. A machine is known by its object's name, its hostname,
// its serial number, a MAC address or an IP address; what fits two machines is refused with both of them named, because
// the next step may be to write to it.
package lookup

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// NotFoundError says that no machine fits.
type NotFoundError struct {
	Query string
	// Known is how many machines were looked at.
	Known int
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("no machine %q: none of %d has it as name, hostname, serial number, MAC or IP address; `ichor machine list -o wide` shows them", e.Query, e.Known)
}

// AmbiguousError says that several machines fit.
type AmbiguousError struct {
	Query      string
	Candidates []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q fits %d machines: %s; use the name", e.Query, len(e.Candidates), strings.Join(e.Candidates, ", "))
}

// Machine finds the one machine that a query means. An object's name always means that object; else everything a machine
// is known by counts alike.
func Machine(machines []v1alpha1.TalosMachine, query string) (*v1alpha1.TalosMachine, error) {
	wanted := ObjectName(query)
	for i := range machines {
		if machines[i].Name == strings.ToLower(wanted) || machines[i].Name == wanted {
			return &machines[i], nil
		}
	}
	var found []*v1alpha1.TalosMachine
	for i := range machines {
		if knownAs(&machines[i], wanted) != "" {
			found = append(found, &machines[i])
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, &NotFoundError{Query: query, Known: len(machines)}
	}
	ambiguous := &AmbiguousError{Query: query}
	for _, machine := range found {
		ambiguous.Candidates = append(ambiguous.Candidates, fmt.Sprintf("%s (%s)", machine.Name, knownAs(machine, wanted)))
	}
	slices.Sort(ambiguous.Candidates)
	return nil, ambiguous
}

// ObjectName takes the kind off a name as `-o name` prints it: talosmachine.ichor.maesh.dev/NAME.
func ObjectName(query string) string {
	kind, name, found := strings.Cut(query, "/")
	if !found {
		return query
	}
	kind = strings.TrimSuffix(kind, "."+v1alpha1.GroupName)
	if slices.Contains([]string{"talosmachine", "talosmachines", "tm", "taloscluster", "talosclusters", "tc", "talosconfigpatch", "talosconfigpatches", "tcp", "talosoperation", "talosoperations", "talosop"}, kind) {
		return name
	}
	return query
}

// knownAs says in which way a machine is known by a word; empty if it isn't.
func knownAs(machine *v1alpha1.TalosMachine, word string) string {
	for _, hostname := range []string{machine.Spec.Hostname, machine.Status.Hostname, machine.Status.NodeName} {
		if hostname != "" && strings.EqualFold(hostname, word) {
			return "hostname " + hostname
		}
	}
	if serial := machine.Spec.Identity.SerialNumber; serial != "" && strings.EqualFold(serial, word) {
		return "serial " + serial
	}
	if uuid := machine.Spec.Identity.UUID; uuid != "" && strings.EqualFold(uuid, word) {
		return "UUID " + uuid
	}
	if mac, err := net.ParseMAC(word); err == nil && hasMAC(machine, mac.String()) {
		return "MAC " + mac.String()
	}
	if address, err := netip.ParseAddr(word); err == nil && hasAddress(machine, address.Unmap()) {
		return "address " + address.Unmap().String()
	}
	return ""
}

func hasMAC(machine *v1alpha1.TalosMachine, mac string) bool {
	known := slices.Clone(machine.Spec.Identity.MACAddresses)
	if machine.Status.Inventory != nil {
		for _, link := range machine.Status.Inventory.Links {
			known = append(known, link.PermanentMAC, link.MAC)
		}
	}
	return slices.ContainsFunc(known, func(candidate string) bool { return strings.EqualFold(candidate, mac) })
}

func hasAddress(machine *v1alpha1.TalosMachine, address netip.Addr) bool {
	known := append(slices.Clone(machine.Status.Addresses), machine.Spec.Address)
	if machine.Spec.Network != nil {
		known = append(known, machine.Spec.Network.Addresses...)
	}
	return slices.ContainsFunc(known, func(text string) bool {
		bare, _, _ := strings.Cut(text, "/")
		candidate, err := netip.ParseAddr(bare)
		return err == nil && candidate.Unmap() == address
	})
}
