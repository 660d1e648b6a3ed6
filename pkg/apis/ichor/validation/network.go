// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/identity"
)

const (
	maxStaticAddresses = 16
	maxNameservers     = 16
	maxVLAN            = 4094
)

// validateMachineNetwork judges a machine's addressing against the links that were seen on it and against the addresses
// of the other machines.
func validateMachineNetwork(machine *ichor.TalosMachine, facts ApprovalFacts, path *field.Path) field.ErrorList {
	spec := machine.Spec.Network
	if spec == nil {
		return nil
	}
	errs := validateInterface(spec.Interface.MAC, machine.Status.Inventory, path.Child("interface", "mac"))
	if spec.VLAN != nil {
		errs = append(errs, between(*spec.VLAN, 1, maxVLAN, path.Child("vlan"))...)
	}
	if len(spec.Nameservers) > maxNameservers {
		errs = append(errs, field.TooMany(path.Child("nameservers"), len(spec.Nameservers), maxNameservers))
	}
	for i, text := range spec.Nameservers {
		_, bad := ipAddress(text, path.Child("nameservers").Index(i))
		errs = append(errs, bad...)
	}
	switch spec.Addressing {
	case ichor.AddressingDHCP:
		if len(spec.Addresses) > 0 {
			errs = append(errs, field.Forbidden(path.Child("addresses"), "are for addressing static"))
		}
		if spec.Gateway != "" {
			errs = append(errs, field.Forbidden(path.Child("gateway"), "is for addressing static"))
		}
	case ichor.AddressingStatic:
		errs = append(errs, validateStatic(machine, facts, path)...)
	default:
		errs = append(errs, oneOf(spec.Addressing, path.Child("addressing"), ichor.AddressingDHCP, ichor.AddressingStatic)...)
	}
	return errs
}

func validateInterface(mac string, inventory *ichor.MachineInventory, path *field.Path) field.ErrorList {
	if mac == "" {
		return field.ErrorList{field.Required(path, "the permanent address of a physical link")}
	}
	normal := identity.NormalizeMAC(mac)
	if normal == "" {
		return field.ErrorList{field.Invalid(path, mac, "must be the address of a network interface, such as 02:00:5e:00:53:01")}
	}
	if inventory == nil {
		return nil
	}
	var links []string
	for _, link := range inventory.Links {
		if identity.NormalizeMAC(link.PermanentMAC) == normal {
			return nil
		}
		links = append(links, fmt.Sprintf("%s (%s)", link.Name, link.PermanentMAC))
	}
	return field.ErrorList{field.Invalid(path, mac, "no physical link of the machine has this permanent address; it has "+strings.Join(links, ", "))}
}

func validateStatic(machine *ichor.TalosMachine, facts ApprovalFacts, path *field.Path) field.ErrorList {
	spec := machine.Spec.Network
	var errs field.ErrorList
	var networks []netip.Prefix
	if len(spec.Addresses) == 0 {
		errs = append(errs, field.Required(path.Child("addresses"), "addressing static needs an address, such as 10.0.0.11/24"))
	}
	if len(spec.Addresses) > maxStaticAddresses {
		errs = append(errs, field.TooMany(path.Child("addresses"), len(spec.Addresses), maxStaticAddresses))
	}
	holders := addressHolders(facts.Others)
	seen := map[netip.Addr]bool{}
	for i, text := range spec.Addresses {
		path := path.Child("addresses").Index(i)
		prefix, bad := hostPrefix(text, path)
		errs = append(errs, bad...)
		if len(bad) > 0 {
			continue
		}
		networks = append(networks, prefix)
		if seen[prefix.Addr()] {
			errs = append(errs, field.Duplicate(path, text))
		}
		seen[prefix.Addr()] = true
		if holder, held := holders[prefix.Addr()]; held {
			errs = append(errs, field.Invalid(path, text, "is held by machine "+holder))
		}
	}
	return append(errs, validateGateway(spec.Gateway, networks, path.Child("gateway"))...)
}

// hostPrefix parses the address of one host with the length of its network's prefix.
func hostPrefix(text string, path *field.Path) (netip.Prefix, field.ErrorList) {
	if _, err := netip.ParseAddr(text); err == nil {
		return netip.Prefix{}, field.ErrorList{field.Invalid(path, text, "needs the length of its network's prefix, such as "+text+"/24")}
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, field.ErrorList{field.Invalid(path, text, "must be an address with the length of its network's prefix, such as 10.0.0.11/24")}
	}
	if _, bad := ipAddress(prefix.Addr().String(), path); len(bad) > 0 {
		return prefix, bad
	}
	if !isHost(prefix) {
		return prefix, field.ErrorList{field.Invalid(path, text, "is the network's first or last address, which no host can have")}
	}
	return prefix, nil
}

// isHost tells whether a host can have the address: in IPv4 networks of more than two addresses, the first and the last
// are the network's own.
func isHost(prefix netip.Prefix) bool {
	if prefix.Bits() == 0 {
		return false
	}
	if !prefix.Addr().Is4() || prefix.Bits() >= 31 {
		return true
	}
	last := prefix.Masked().Addr().As4()
	for i := range last {
		bits := min(max(prefix.Bits()-8*i, 0), 8)
		last[i] |= byte(0xff >> bits)
	}
	return prefix.Addr() != prefix.Masked().Addr() && prefix.Addr() != netip.AddrFrom4(last)
}

func validateGateway(text string, networks []netip.Prefix, path *field.Path) field.ErrorList {
	if text == "" {
		return nil
	}
	gateway, errs := ipAddress(text, path)
	if len(errs) > 0 || len(networks) == 0 {
		return errs
	}
	var names []string
	for _, network := range networks {
		if network.Addr() == gateway {
			return field.ErrorList{field.Invalid(path, text, "is the machine's own address")}
		}
		if network.Contains(gateway) {
			return nil
		}
		names = append(names, network.Masked().String())
	}
	return field.ErrorList{field.Invalid(path, text, "lies in none of the machine's networks: "+strings.Join(names, ", "))}
}

// addressHolders says which other machine has, or will have, an address.
func addressHolders(others []ichor.TalosMachine) map[netip.Addr]string {
	holders := map[netip.Addr]string{}
	for i := range others {
		for address := range addressesOf(&others[i]) {
			holders[address] = others[i].Name
		}
	}
	return holders
}
