// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net/netip"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

func networkGroups(v View) []Group {
	return []Group{
		group("network.HostnameSpecController", network.NamespaceName, network.HostnameStatusType, hostnameStatus(v)...),
		group("network.HostnameMergeController", network.NamespaceName, network.HostnameSpecType, hostnameSpec(v)...),
		group("network.StatusController", network.NamespaceName, network.StatusType, networkStatus(v)),
		group("network.NodeAddressController", network.NamespaceName, network.NodeAddressType, nodeAddresses(v)...),
		group("network.NodeAddressSortAlgorithmController", network.NamespaceName, network.NodeAddressSortAlgorithmType,
			network.NewNodeAddressSortAlgorithm(network.NamespaceName, network.NodeAddressSortAlgorithmID)),
		group("network.ResolverMergeController", network.NamespaceName, network.ResolverSpecType, network.NewResolverSpec(network.NamespaceName, network.ResolverID)),
		group("network.ResolverSpecController", network.NamespaceName, network.ResolverStatusType, resolverStatus()),
		group("network.TimeServerMergeController", network.NamespaceName, network.TimeServerSpecType, timeServerSpec()),
		group("network.TimeServerSpecController", network.NamespaceName, network.TimeServerStatusType, timeServerStatus()),
		group("network.HostDNSConfigController", network.NamespaceName, network.HostDNSConfigType, network.NewHostDNSConfig(network.HostDNSConfigID)),
		group("network.PlatformConfigController", network.NamespaceName, network.PlatformConfigType,
			network.NewPlatformConfig(network.NamespaceName, network.PlatformConfigActiveID)),
	}
}

func hostnameStatus(v View) []resource.Resource {
	return when(v.Hostname != "", func() resource.Resource {
		r := network.NewHostnameStatus(network.NamespaceName, network.HostnameID)
		r.TypedSpec().Hostname, r.TypedSpec().Domainname = v.Hostname, v.Domainname
		return r
	})
}

func hostnameSpec(v View) []resource.Resource {
	return when(v.Hostname != "", func() resource.Resource {
		r := network.NewHostnameSpec(network.NamespaceName, network.HostnameID)
		r.TypedSpec().Hostname, r.TypedSpec().Domainname = v.Hostname, v.Domainname
		return r
	})
}

func networkStatus(v View) resource.Resource {
	r := network.NewStatus(network.NamespaceName, network.StatusID)
	s := r.TypedSpec()
	s.AddressReady, s.ConnectivityReady, s.EtcFilesReady = v.Address.IsValid(), v.Address.IsValid(), true
	s.HostnameReady = v.Hostname != ""
	return r
}

// nodeAddresses has the address also under the ids with the Kubernetes filters once a configuration defines those.
func nodeAddresses(v View) []resource.Resource {
	var current []netip.Prefix
	if v.Address.IsValid() {
		current = append([]netip.Prefix{v.Address}, v.Also...)
	}
	var list []resource.Resource
	add := func(id resource.ID, addresses []netip.Prefix) {
		r := network.NewNodeAddress(network.NamespaceName, id)
		r.TypedSpec().Addresses = addresses
		list = append(list, r)
	}
	add(network.NodeAddressDefaultID, current)
	for id, addresses := range map[resource.ID][]netip.Prefix{
		network.NodeAddressCurrentID: current, network.NodeAddressRoutedID: current, network.NodeAddressAccumulativeID: v.Seen,
	} {
		add(id, addresses)
		if !v.Maintenance {
			add(network.FilteredNodeAddressID(id, "no-k8s"), addresses)
			add(network.FilteredNodeAddressID(id, "only-k8s"), nil)
		}
	}
	return list
}

func resolverStatus() resource.Resource {
	r := network.NewResolverStatus(network.NamespaceName, network.ResolverID)
	r.TypedSpec().DNSServers = []netip.Addr{netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("8.8.8.8")}
	return r
}

const defaultTimeServer = "time.cloudflare.com"

func timeServerSpec() resource.Resource {
	r := network.NewTimeServerSpec(network.NamespaceName, network.TimeServerID)
	r.TypedSpec().NTPServers = []string{defaultTimeServer}
	return r
}

func timeServerStatus() resource.Resource {
	r := network.NewTimeServerStatus(network.NamespaceName, network.TimeServerID)
	r.TypedSpec().NTPServers = []string{defaultTimeServer}
	return r
}
