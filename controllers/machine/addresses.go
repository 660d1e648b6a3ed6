// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"net/netip"
	"slices"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// maxCandidates bounds the addresses that are tried for one machine.
const maxCandidates = 6

// candidates are the addresses to look for a machine at, likeliest first. The declared static address counts only once
// a configuration with it may have been sent: until then the machine is where it was seen.
func candidates(m *v1alpha1.TalosMachine) []netip.Addr {
	var texts []string
	if m.Spec.Origin == v1alpha1.MachineAdopted {
		texts = append(texts, m.Spec.Address)
	}
	if sent(m) {
		texts = append(texts, declared(m)...)
	}
	texts = append(texts, m.Status.Addresses...)
	if sent(m) {
		texts = append(texts, m.Status.Provisioning.Address)
	}
	var addresses []netip.Addr
	for _, text := range texts {
		address, err := netip.ParseAddr(text)
		if err != nil || !dialable(address) || slices.Contains(addresses, address) {
			continue
		}
		addresses = append(addresses, address)
	}
	return addresses[:min(len(addresses), maxCandidates)]
}

// dialable leaves out what never leads to the machine alone.
func dialable(address netip.Addr) bool {
	return address.IsValid() && !address.IsUnspecified() && !address.IsMulticast() && !address.IsLinkLocalUnicast()
}

// declared are the static addresses without prefix length.
func declared(m *v1alpha1.TalosMachine) []string {
	if m.Spec.Network == nil || m.Spec.Network.Addressing != v1alpha1.AddressingStatic {
		return nil
	}
	var addresses []string
	for _, text := range m.Spec.Network.Addresses {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			addresses = append(addresses, prefix.Addr().String())
		}
	}
	return addresses
}

// sent tells whether a configuration was, or may have been, sent to the machine.
func sent(m *v1alpha1.TalosMachine) bool {
	return m.Status.Provisioning != nil && m.Status.Provisioning.IntendedAt != nil
}

// inOwnNetwork tells whether an address is the machine's own or lies in a network that it is in.
func inOwnNetwork(m *v1alpha1.TalosMachine, address netip.Addr) bool {
	if slices.Contains(m.Status.Addresses, address.String()) {
		return true
	}
	var networks []string
	if m.Spec.Network != nil {
		networks = append(networks, m.Spec.Network.Addresses...)
	}
	if m.Status.Inventory != nil {
		for _, link := range m.Status.Inventory.Links {
			networks = append(networks, link.Addresses...)
		}
	}
	return slices.ContainsFunc(networks, func(text string) bool {
		prefix, err := netip.ParsePrefix(text)
		return err == nil && prefix.Contains(address)
	})
}
