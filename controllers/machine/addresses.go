// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"net/netip"
	"net/url"
	"slices"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// maxCandidates bounds the addresses that are tried for one machine.
const maxCandidates = 6

// candidates are the addresses to look for a machine at, likeliest first. The declared static addresses count only once
// a configuration with them may have been sent: until then the machine is where it was seen. The address that was seen
// last stands at the end of the status, and is not cut off with what the machine has besides.
func candidates(m *v1alpha1.TalosMachine) []netip.Addr {
	var texts []string
	if m.Spec.Origin == v1alpha1.MachineAdopted {
		texts = append(texts, m.Spec.Address)
	}
	known := m.Status.Addresses
	if len(known) > 0 {
		texts = append(texts, known[0])
	}
	if sent(m) {
		texts = append(texts, m.Status.Provisioning.Address)
	}
	if len(known) > 0 {
		texts = append(texts, known[len(known)-1])
	}
	if sent(m) {
		texts = append(texts, declared(m)...)
	}
	texts = append(texts, known...)
	var addresses []netip.Addr
	for _, text := range texts {
		address, err := netip.ParseAddr(text)
		address = address.Unmap()
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

// inOwnNetwork tells whether an address is the machine's own or lies in a network that it is in. It goes by what was
// approved, by where the configuration was sent, and by the links that the machine itself showed over a connection that
// was verified. The addresses of the status don't count: whoever answers there may have put them there.
func inOwnNetwork(m *v1alpha1.TalosMachine, address netip.Addr) bool {
	if record := m.Status.Provisioning; record != nil && record.Address == address.String() {
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

// hasHost tells whether the host of a URL is an IP address.
func hasHost(text, address string) bool {
	parsed, err := url.Parse(text)
	if err != nil {
		return false
	}
	have, err := netip.ParseAddr(parsed.Hostname())
	want, err2 := netip.ParseAddr(address)
	return err == nil && err2 == nil && have == want
}
