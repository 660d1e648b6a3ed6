// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// primaryAlias is the name that the chosen interface gets. Interface names may change at any boot; the alias follows the
// permanent MAC address. It must not look like a name that the kernel gives.
const primaryAlias = "primary"

// networkDocuments are the chosen interface's documents. With none, Talos runs DHCP on every link; the first link or DHCP
// document switches that off everywhere (Talos: pkg/machinery/config/container, RunDefaultDHCPOperators), so the chosen
// interface is then the only one that is configured.
func networkDocuments(chosen *v1alpha1.MachineNetwork, inventory *v1alpha1.MachineInventory) ([]config.Document, error) {
	if chosen == nil {
		return nil, nil
	}
	alias, err := aliasDocument(chosen.Interface.MAC, inventory)
	if err != nil {
		return nil, err
	}
	common, err := commonLink(chosen)
	if err != nil {
		return nil, err
	}
	documents := []config.Document{alias}
	link := network.NewLinkConfigV1Alpha1(primaryAlias)
	addressed := primaryAlias
	if chosen.VLAN == nil {
		link.CommonLinkConfig = common
		documents = append(documents, link)
	} else {
		link.LinkUp = common.LinkUp
		vlan, err := vlanDocument(*chosen.VLAN, common)
		if err != nil {
			return nil, err
		}
		addressed = vlan.MetaName
		documents = append(documents, link, vlan)
	}
	if chosen.Addressing != v1alpha1.AddressingStatic {
		documents = append(documents, network.NewDHCPv4ConfigV1Alpha1(addressed))
	}
	if len(chosen.Nameservers) == 0 {
		return documents, nil
	}
	resolver, err := resolverDocument(chosen.Nameservers)
	if err != nil {
		return nil, err
	}
	return append(documents, resolver), nil
}

func aliasDocument(mac string, inventory *v1alpha1.MachineInventory) (config.Document, error) {
	found := 0
	if inventory != nil {
		for _, link := range inventory.Links {
			if strings.EqualFold(link.PermanentMAC, mac) {
				found++
			}
		}
	}
	if found != 1 {
		return nil, fmt.Errorf("spec.network.interface.mac: %d interfaces of the machine have the permanent address %s, expected one", found, mac)
	}
	expression, err := cel.ParseBooleanExpression("mac(link.permanent_addr) == "+strconv.QuoteToASCII(strings.ToLower(mac)), celenv.LinkLocator())
	if err != nil {
		return nil, fmt.Errorf("spec.network.interface.mac: choose the interface %q: %w", mac, err)
	}
	alias := network.NewLinkAliasConfigV1Alpha1(primaryAlias)
	alias.Selector = network.LinkSelector{Match: expression}
	return alias, nil
}

// commonLink is what holds the addresses: the interface itself or a VLAN on it.
func commonLink(chosen *v1alpha1.MachineNetwork) (network.CommonLinkConfig, error) {
	up := true
	common := network.CommonLinkConfig{LinkUp: &up}
	if chosen.Addressing != v1alpha1.AddressingStatic {
		return common, nil
	}
	for i, text := range chosen.Addresses {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return common, fmt.Errorf("spec.network.addresses[%d]: %q is no address with prefix length such as 10.0.0.11/24", i, text)
		}
		common.LinkAddresses = append(common.LinkAddresses, network.AddressConfig{AddressAddress: prefix})
	}
	if chosen.Gateway == "" {
		return common, nil
	}
	gateway, err := netip.ParseAddr(chosen.Gateway)
	if err != nil {
		return common, fmt.Errorf("spec.network.gateway: %q is no IP address", chosen.Gateway)
	}
	common.LinkRoutes = []network.RouteConfig{{RouteGateway: network.Addr{Addr: gateway}}}
	return common, nil
}

func vlanDocument(id int32, common network.CommonLinkConfig) (*network.VLANConfigV1Alpha1, error) {
	if id < 1 || id > 4094 {
		return nil, fmt.Errorf("spec.network.vlan: %d is not between 1 and 4094", id)
	}
	vlan := network.NewVLANConfigV1Alpha1(fmt.Sprintf("vlan%d", id))
	vlan.VLANIDConfig = uint16(id)
	vlan.ParentLinkConfig = primaryAlias
	vlan.CommonLinkConfig = common
	return vlan, nil
}

func resolverDocument(nameservers []string) (config.Document, error) {
	resolver := network.NewResolverConfigV1Alpha1()
	for i, text := range nameservers {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("spec.network.nameservers[%d]: %q is no IP address", i, text)
		}
		resolver.ResolverNameservers = append(resolver.ResolverNameservers, network.NameserverConfig{Address: network.Addr{Addr: address}})
	}
	return resolver, nil
}
