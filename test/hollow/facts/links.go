// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net"
	"net/netip"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"

	"maesh.dev/ichor/test/hollow/fleet"
)

const (
	loopbackIndex  = 1
	firstLinkIndex = 2
)

func linkGroups(v View) []Group {
	links := []resource.Resource{loopbackLink()}
	var ethernet, defaults []resource.Resource
	for i, l := range v.Machine.Links {
		links = append(links, linkStatus(l, uint32(firstLinkIndex+i)))
		if l.Kind == "" {
			ethernet = append(ethernet, ethernetStatus(l))
			defaults = append(defaults, hardwareAddress(l)...)
		}
	}
	if len(defaults) > 1 {
		defaults = defaults[:1]
	}
	return []Group{
		group("network.LinkStatusController", network.NamespaceName, network.LinkStatusType, links...),
		group("network.EthernetStatusController", network.NamespaceName, network.EthernetStatusType, ethernet...),
		group("network.HardwareAddrController", network.NamespaceName, network.HardwareAddrType, defaults...),
		group("network.AddressStatusController", network.NamespaceName, network.AddressStatusType, addressStatuses(v)...),
	}
}

// PrimaryLink is the link that has the node's address: the first one that is up, or "" if the machine has none.
func PrimaryLink(m fleet.Machine) (name string, index uint32) {
	for i, l := range m.Links {
		if l.Up && l.Kind == "" {
			return l.Name, uint32(firstLinkIndex + i)
		}
	}
	return "", 0
}

func loopbackLink() resource.Resource {
	r := network.NewLinkStatus(network.NamespaceName, "lo")
	s := r.TypedSpec()
	s.Index, s.Type, s.MTU, s.QueueDisc = loopbackIndex, nethelpers.LinkLoopbck, 65536, "noqueue"
	s.Flags = nethelpers.LinkFlags(nethelpers.LinkUp | nethelpers.LinkLoopback | nethelpers.LinkRunning | nethelpers.LinkLowerUp)
	s.HardwareAddr, s.BroadcastAddr = make([]byte, 6), make([]byte, 6)
	s.OperationalState, s.LinkState = nethelpers.OperStateUnknown, true
	s.Port, s.Duplex = nethelpers.Other, nethelpers.Unknown
	return r
}

// mac parses an address that the fleet's checks have let through; "" gives none.
func mac(text string) nethelpers.HardwareAddr {
	address, err := net.ParseMAC(text)
	if err != nil {
		return nil
	}
	return nethelpers.HardwareAddr(address)
}

func linkStatus(l fleet.Link, index uint32) resource.Resource {
	r := network.NewLinkStatus(network.NamespaceName, l.Name)
	s := r.TypedSpec()
	s.Index, s.Type, s.MTU, s.QueueDisc = index, nethelpers.LinkEther, 1500, "mq"
	s.HardwareAddr, s.PermanentAddr, s.BroadcastAddr = mac(l.MAC), mac(l.PermanentMAC), mac("ff:ff:ff:ff:ff:ff")
	s.Kind, s.Driver = l.Kind, l.Driver
	s.Flags = nethelpers.LinkFlags(nethelpers.LinkUp | nethelpers.LinkBroadcast | nethelpers.LinkMulticast)
	s.OperationalState, s.Port, s.Duplex = nethelpers.OperStateDown, nethelpers.Other, nethelpers.Unknown
	if l.Kind == "" {
		s.BusPath, s.PCIID, s.VendorID, s.ProductID = l.BusPath, "8086:1557", "0x8086", "0x1557"
		s.Vendor, s.Product = "Hollow", "Hollow NIC"
		s.Port = nethelpers.Fibre
	}
	if l.Up {
		s.Flags |= nethelpers.LinkFlags(nethelpers.LinkRunning | nethelpers.LinkLowerUp)
		s.OperationalState, s.LinkState, s.SpeedMegabits, s.Duplex = nethelpers.OperStateUp, true, l.Speed, nethelpers.Full
	}
	return r
}

func ethernetStatus(l fleet.Link) resource.Resource {
	r := network.NewEthernetStatus(network.NamespaceName, l.Name)
	s := r.TypedSpec()
	up := l.Up
	s.LinkState, s.Port, s.Duplex = &up, nethelpers.Fibre, nethelpers.Unknown
	if up {
		s.SpeedMegabits, s.Duplex = l.Speed, nethelpers.Full
	}
	return r
}

func hardwareAddress(l fleet.Link) []resource.Resource {
	address := mac(l.PermanentMAC)
	if len(address) == 0 {
		return nil
	}
	r := network.NewHardwareAddr(network.NamespaceName, network.FirstHardwareAddr)
	r.TypedSpec().Name, r.TypedSpec().HardwareAddr = l.Name, address
	return []resource.Resource{r}
}

func addressStatuses(v View) []resource.Resource {
	list := []resource.Resource{
		addressStatus("lo", loopbackIndex, netip.MustParsePrefix("127.0.0.1/8"), nethelpers.ScopeHost),
		addressStatus("lo", loopbackIndex, netip.MustParsePrefix("::1/128"), nethelpers.ScopeHost),
	}
	if link, index := PrimaryLink(v.Machine); link != "" && v.Address.IsValid() {
		for _, address := range append([]netip.Prefix{v.Address}, v.Also...) {
			list = append(list, addressStatus(link, index, address, nethelpers.ScopeGlobal))
		}
	}
	return list
}

func addressStatus(link string, index uint32, address netip.Prefix, scope nethelpers.Scope) resource.Resource {
	r := network.NewAddressStatus(network.NamespaceName, network.AddressID(link, address))
	s := r.TypedSpec()
	s.Address, s.LinkName, s.LinkIndex, s.Scope = address, link, index, scope
	s.Family = nethelpers.FamilyInet4
	if address.Addr().Is6() {
		s.Family = nethelpers.FamilyInet6
	}
	s.Flags = nethelpers.AddressFlags(nethelpers.AddressPermanent)
	return r
}
