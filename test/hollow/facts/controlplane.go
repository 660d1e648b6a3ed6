// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net/netip"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
)

// controlPlaneGroups are what a client reads to upgrade Kubernetes and to rotate CAs: the components' configurations, whose
// version grows with each change, and the root secrets.
func controlPlaneGroups(v View) []Group {
	ns := k8s.ControlPlaneNamespaceName
	on := v.Type().IsControlPlane() && v.Active.Cluster() != nil
	configured := v.Type() != machine.TypeUnknown && v.Active.Cluster() != nil
	return []Group{
		group("k8s.ControlPlaneAPIServerController", ns, k8s.APIServerConfigType, when(on, func() resource.Resource { return apiServer(v) })...),
		group("k8s.ControlPlaneControllerManagerController", ns, k8s.ControllerManagerConfigType,
			when(on, func() resource.Resource { return controllerManager(v) })...),
		group("k8s.ControlPlaneSchedulerController", ns, k8s.SchedulerConfigType, when(on, func() resource.Resource { return scheduler(v) })...),
		group("secrets.RootEtcdController", secrets.NamespaceName, secrets.EtcdRootType, when(on, func() resource.Resource { return etcdRoot(v) })...),
		group("secrets.RootKubernetesController", secrets.NamespaceName, secrets.KubernetesRootType,
			when(on, func() resource.Resource { return kubernetesRoot(v) })...),
		group("etcd.SpecController", etcd.NamespaceName, etcd.SpecType, when(on && v.Hostname != "", func() resource.Resource { return etcdSpec(v) })...),
		group("k8s.KubeletSpecController", k8s.NamespaceName, k8s.KubeletSpecType,
			when(configured && v.Hostname != "", func() resource.Resource { return kubeletSpec(v) })...),
		group("k8s.NodeLabelSpecController", k8s.NamespaceName, k8s.NodeLabelSpecType, nodeLabels(v, on)...),
		group("k8s.NodeTaintSpecController", k8s.NamespaceName, k8s.NodeTaintSpecType, nodeTaints(v, on)...),
		group("cluster.LocalAffiliateController", cluster.NamespaceName, cluster.MemberType,
			members(v, configured)...),
		group("k8s.AddressFilterController", network.NamespaceName, network.NodeAddressFilterType, addressFilters(configured)...),
	}
}

func apiServer(v View) resource.Resource {
	c := v.Active.Cluster()
	r := k8s.NewAPIServerConfig()
	s := r.TypedSpec()
	s.Image, s.LocalPort, s.AdvertisedAddress = c.APIServer().Image(), c.LocalAPIServerPort(), "$(POD_IP)"
	s.ControlPlaneEndpoint, s.EtcdServers = c.Endpoint().String(), []string{"https://localhost:2379"}
	s.ServiceCIDRs = c.Network().ServiceCIDRs()
	s.EnvironmentVariables = c.APIServer().Env()
	s.ExtraArgs = argValues(c.APIServer().ExtraArgs())
	return r
}

func argValues(args map[string][]string) map[string]k8s.ArgValues {
	out := map[string]k8s.ArgValues{}
	for name, values := range args {
		out[name] = k8s.ArgValues{Values: values}
	}
	return out
}

func controllerManager(v View) resource.Resource {
	c := v.Active.Cluster()
	r := k8s.NewControllerManagerConfig()
	s := r.TypedSpec()
	s.Enabled, s.Image = true, c.ControllerManager().Image()
	s.PodCIDRs, s.ServiceCIDRs = c.Network().PodCIDRs(), c.Network().ServiceCIDRs()
	s.EnvironmentVariables = c.ControllerManager().Env()
	s.ExtraArgs = argValues(c.ControllerManager().ExtraArgs())
	return r
}

func scheduler(v View) resource.Resource {
	c := v.Active.Cluster()
	r := k8s.NewSchedulerConfig()
	s := r.TypedSpec()
	s.Enabled, s.Image = true, c.Scheduler().Image()
	s.EnvironmentVariables = c.Scheduler().Env()
	s.ExtraArgs = argValues(c.Scheduler().ExtraArgs())
	return r
}

func etcdRoot(v View) resource.Resource {
	r := secrets.NewEtcdRoot(secrets.EtcdRootID)
	r.TypedSpec().EtcdCA = v.Active.Cluster().Etcd().CA()
	return r
}

func kubernetesRoot(v View) resource.Resource {
	c := v.Active.Cluster()
	r := secrets.NewKubernetesRoot(secrets.KubernetesRootID)
	s := r.TypedSpec()
	s.Name, s.Endpoint, s.DNSDomain = c.Name(), c.Endpoint(), c.Network().DNSDomain()
	s.IssuingCA, s.AcceptedCAs = c.IssuingCA(), append([]*x509.PEMEncodedCertificate(nil), c.AcceptedCAs()...)
	if s.IssuingCA != nil {
		s.AcceptedCAs = append(s.AcceptedCAs, &x509.PEMEncodedCertificate{Crt: s.IssuingCA.Crt})
	}
	s.ServiceAccount, s.AggregatorCA = c.ServiceAccount(), c.AggregatorCA()
	s.AESCBCEncryptionSecret, s.SecretboxEncryptionSecret = c.AESCBCEncryptionSecret(), c.SecretboxEncryptionSecret()
	s.BootstrapTokenID, s.BootstrapTokenSecret = c.Token().ID(), c.Token().Secret()
	return r
}

func etcdSpec(v View) resource.Resource {
	r := etcd.NewSpec(etcd.NamespaceName, etcd.SpecID)
	s := r.TypedSpec()
	s.Name, s.Image = v.Hostname, v.Active.Cluster().Etcd().Image()
	s.AdvertisedAddresses = []netip.Addr{v.Address.Addr()}
	s.ListenPeerAddresses, s.ListenClientAddresses = s.AdvertisedAddresses, s.AdvertisedAddresses
	return r
}

func kubeletSpec(v View) resource.Resource {
	r := k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID)
	r.TypedSpec().Image, r.TypedSpec().ExpectedNodename = v.Active.Machine().Kubelet().Image(), v.Hostname
	return r
}

func nodeLabels(v View, controlPlane bool) []resource.Resource {
	if v.Type() == machine.TypeUnknown {
		return nil
	}
	labels := map[string]string{}
	if controlPlane {
		labels["node-role.kubernetes.io/control-plane"] = ""
	}
	for key, value := range v.Active.Machine().NodeLabels() {
		labels[key] = value
	}
	var list []resource.Resource
	for key, value := range labels {
		r := k8s.NewNodeLabelSpec(key)
		r.TypedSpec().Key, r.TypedSpec().Value = key, value
		list = append(list, r)
	}
	return list
}

func nodeTaints(v View, controlPlane bool) []resource.Resource {
	return when(controlPlane && !v.Active.Cluster().ScheduleOnControlPlanes(), func() resource.Resource {
		const key = "node-role.kubernetes.io/control-plane"
		r := k8s.NewNodeTaintSpec(key)
		r.TypedSpec().Key, r.TypedSpec().Effect = key, "NoSchedule"
		return r
	})
}

// members are this machine and the control planes that discovery knows, by hostname: of two with one, this machine.
func members(v View, configured bool) []resource.Resource {
	if !configured || v.Hostname == "" {
		return nil
	}
	list, named := []resource.Resource{member(v)}, map[string]bool{v.Hostname: true}
	for _, peer := range v.Peers {
		if peer.Hostname == "" || named[peer.Hostname] {
			continue
		}
		named[peer.Hostname] = true
		r := cluster.NewMember(cluster.NamespaceName, peer.Hostname)
		*r.TypedSpec() = cluster.MemberSpec{
			NodeID: peer.NodeID, Hostname: peer.Hostname, MachineType: machine.TypeControlPlane,
			OperatingSystem: "Talos (" + peer.Version + ")", Addresses: []netip.Addr{peer.Address},
			ControlPlane: &cluster.ControlPlane{APIServerPort: peer.APIPort},
		}
		list = append(list, r)
	}
	return list
}

func member(v View) resource.Resource {
	r := cluster.NewMember(cluster.NamespaceName, v.Hostname)
	s := r.TypedSpec()
	s.NodeID, s.Hostname, s.MachineType, s.OperatingSystem = v.NodeID, v.Hostname, v.Type(), "Talos ("+v.Version+")"
	s.Addresses = []netip.Addr{v.Address.Addr()}
	if v.Type().IsControlPlane() {
		s.ControlPlane = &cluster.ControlPlane{APIServerPort: v.Active.Cluster().LocalAPIServerPort()}
	}
	return r
}

func addressFilters(configured bool) []resource.Resource {
	if !configured {
		return nil
	}
	var list []resource.Resource
	for _, id := range []string{k8s.NodeAddressFilterNoK8s, k8s.NodeAddressFilterOnlyK8s} {
		list = append(list, network.NewNodeAddressFilter(network.NamespaceName, id))
	}
	return list
}
