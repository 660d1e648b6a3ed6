// SPDX-License-Identifier: Apache-2.0

package proposal

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Link is a network interface of the inventory.
type Link struct {
	v1alpha1.LinkInventory
	// Dialled is true for the interface with the address at which the machine answers.
	Dialled bool
}

// Address is the link's first global address with its prefix length, for instance 10.0.0.61/24.
func (l *Link) Address() string {
	for _, text := range l.Addresses {
		prefix, err := netip.ParsePrefix(text)
		if err == nil && prefix.Addr().IsGlobalUnicast() {
			return text
		}
	}
	return ""
}

// Links lists the interfaces that can be chosen, best first: the one the machine answers at, then those with a carrier.
func Links(machine *v1alpha1.TalosMachine) []Link {
	if machine.Status.Inventory == nil {
		return nil
	}
	var links []Link
	for _, found := range machine.Status.Inventory.Links {
		if found.PermanentMAC == "" {
			continue // what has no address of its own can't be chosen for good
		}
		links = append(links, Link{LinkInventory: found, Dialled: holdsAny(found.Addresses, machine.Status.Addresses)})
	}
	rank := func(link *Link) int {
		switch {
		case link.Dialled:
			return 0
		case link.Up:
			return 1
		default:
			return 2
		}
	}
	slices.SortStableFunc(links, func(a, b Link) int { return rank(&a) - rank(&b) })
	return links
}

func holdsAny(prefixes, addresses []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		bare, _, _ := strings.Cut(prefix, "/")
		return slices.Contains(addresses, bare)
	})
}

// BestLink is the interface to take when none was named: the one the machine answers at, else the only one with a
// carrier.
func BestLink(links []Link) (Link, bool) {
	var up []Link
	for _, link := range links {
		if link.Dialled {
			return link, true
		}
		if link.Up {
			up = append(up, link)
		}
	}
	if len(up) == 1 {
		return up[0], true
	}
	return Link{}, false
}

// FindLink resolves what a person typed to one interface: its name in this boot, or a MAC address.
func FindLink(links []Link, typed string) (Link, error) {
	if len(links) == 0 {
		return Link{}, fmt.Errorf("the machine's network interfaces aren't known yet")
	}
	mac := ""
	if parsed, err := net.ParseMAC(typed); err == nil {
		mac = parsed.String()
	}
	for _, link := range links {
		if link.Name == typed || (mac != "" && (strings.EqualFold(link.PermanentMAC, mac) || strings.EqualFold(link.MAC, mac))) {
			return link, nil
		}
	}
	names := make([]string, 0, len(links))
	for _, link := range links {
		names = append(names, fmt.Sprintf("%s (%s)", link.Name, link.PermanentMAC))
	}
	return Link{}, fmt.Errorf("the machine has no interface %q; it has %s", typed, strings.Join(names, ", "))
}

// Neighbourhood takes gateway and name servers from a machine that was approved with a static address in the same
// network as this one; what one rack has answered before needn't be asked again.
func Neighbourhood(address string, machines []v1alpha1.TalosMachine) (gateway string, nameservers []string) {
	mine, err := netip.ParsePrefix(address)
	if err != nil {
		return "", nil
	}
	for i := range machines {
		network := machines[i].Spec.Network
		if network == nil || network.Gateway == "" || machines[i].Spec.ApprovalState != v1alpha1.ApprovalApproved {
			continue
		}
		next, err := netip.ParseAddr(network.Gateway)
		if err == nil && mine.Contains(next) {
			return network.Gateway, network.Nameservers
		}
	}
	return "", nil
}
