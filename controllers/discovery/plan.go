// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"net/netip"
	"slices"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	// maxSubnet is the number of addresses of the largest subnet that is scanned.
	maxSubnet = 65536
	// maxPlan bounds the addresses of one scan.
	maxPlan = 1 << 20
)

// plan is what a scan looks at, in order: the subnets as they are listed, then the single addresses; each address once.
type plan struct {
	addresses []netip.Addr
	// explicit are the addresses that were listed one by one: that nothing answers there is worth saying.
	explicit map[netip.Addr]bool
	// faults say in words what of the spec can't be scanned.
	faults []string
}

// newPlan lays out a scan.
func newPlan(discovery v1alpha1.Discovery) plan {
	out := plan{explicit: map[netip.Addr]bool{}}
	var before []netip.Prefix
	for _, subnet := range discovery.Subnets {
		prefix, err := netip.ParsePrefix(subnet.CIDR)
		if err != nil {
			out.faults = append(out.faults, fmt.Sprintf("subnet %q is no range of addresses", subnet.CIDR))
			continue
		}
		prefix = prefix.Masked()
		if prefix.Addr().BitLen()-prefix.Bits() > 16 {
			out.faults = append(out.faults, fmt.Sprintf("subnet %s holds more than %d addresses", prefix, maxSubnet))
			continue
		}
		out.addSubnet(prefix, before)
		before = append(before, prefix)
	}
	for _, text := range discovery.Addresses {
		address, err := netip.ParseAddr(text)
		if err != nil {
			out.faults = append(out.faults, fmt.Sprintf("%q is no IP address", text))
			continue
		}
		address = address.Unmap()
		if !out.explicit[address] && !slices.ContainsFunc(before, func(p netip.Prefix) bool { return scans(p, address) }) {
			out.add(address)
		}
		out.explicit[address] = true
	}
	return out
}

func (p *plan) addSubnet(prefix netip.Prefix, before []netip.Prefix) {
	p.addresses = slices.Grow(p.addresses, min(1<<(prefix.Addr().BitLen()-prefix.Bits()), maxPlan-len(p.addresses)))
	for address := prefix.Addr(); address.IsValid() && prefix.Contains(address); address = address.Next() {
		if scans(prefix, address) && !slices.ContainsFunc(before, func(earlier netip.Prefix) bool { return scans(earlier, address) }) {
			p.add(address)
		}
	}
}

func (p *plan) add(address netip.Addr) {
	switch len(p.addresses) {
	case maxPlan:
	case maxPlan - 1:
		p.faults = append(p.faults, fmt.Sprintf("only the first %d addresses are scanned", maxPlan))
		fallthrough
	default:
		p.addresses = append(p.addresses, address)
	}
}

// scans tells whether a subnet's scan looks at an address. The first and the last address of an IPv4 network are its
// name and its broadcast address, except in networks of one or two (RFC 3021).
func scans(prefix netip.Prefix, address netip.Addr) bool {
	if !prefix.Contains(address) {
		return false
	}
	if !address.Is4() || prefix.Bits() >= 31 {
		return true
	}
	last := !prefix.Contains(address.Next())
	return address != prefix.Addr() && !last
}

// inScope tells whether a cluster's discovery looks at an address.
func inScope(discovery v1alpha1.Discovery, address netip.Addr) bool {
	for _, subnet := range discovery.Subnets {
		if prefix, err := netip.ParsePrefix(subnet.CIDR); err == nil && scans(prefix.Masked(), address) {
			return true
		}
	}
	return slices.Contains(discovery.Addresses, address.String())
}
