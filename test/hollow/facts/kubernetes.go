// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net/netip"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
)

func kubernetesGroups(v View) []Group {
	ns := k8s.NamespaceName
	return []Group{
		group("k8s.NodenameController", ns, k8s.NodenameType, nodename(v)...),
		group("k8s.NodeStatusController", ns, k8s.NodeStatusType, nodeStatus(v)...),
		group("k8s.KubeletStaticPodController", ns, k8s.StaticPodStatusType, staticPods(v)...),
		group("k8s.StaticPodServerController", ns, k8s.StaticPodServerStatusType,
			k8s.NewStaticPodServerStatus(ns, k8s.StaticPodServerStatusResourceID)),
		group("k8s.NodeIPController", ns, k8s.NodeIPType, nodeIP(v)...),
		group("k8s.EndpointController", k8s.ControlPlaneNamespaceName, k8s.EndpointType, endpoints(v)...),
		group("etcd.MemberController", etcd.NamespaceName, etcd.MemberType, etcdMember(v)...),
	}
}

func nodename(v View) []resource.Resource {
	return when(v.Type() != machine.TypeUnknown && v.Hostname != "", func() resource.Resource {
		r := k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID)
		r.TypedSpec().Nodename, r.TypedSpec().HostnameVersion = v.Hostname, "1"
		r.TypedSpec().SkipNodeRegistration = v.Active.Machine().Kubelet().SkipNodeRegistration()
		return r
	})
}

func nodeStatus(v View) []resource.Resource {
	return when(v.Workload.NodeRegistered, func() resource.Resource {
		r := k8s.NewNodeStatus(k8s.NamespaceName, v.Workload.NodeName)
		r.TypedSpec().Nodename, r.TypedSpec().NodeReady = v.Workload.NodeName, v.Workload.NodeReady
		return r
	})
}

// staticPods are statuses as the kubelet reports them: running, with a Ready condition.
func staticPods(v View) []resource.Resource {
	var list []resource.Resource
	for _, pod := range v.Workload.StaticPods {
		r := k8s.NewStaticPodStatus(k8s.NamespaceName, "kube-system/"+pod.Name)
		ready := "False"
		if pod.Ready {
			ready = "True"
		}
		r.TypedSpec().PodStatus = map[string]any{
			"phase":      "Running",
			"conditions": []any{map[string]any{"type": "Ready", "status": ready}},
		}
		list = append(list, r)
	}
	return list
}

func nodeIP(v View) []resource.Resource {
	return when(v.Type() != machine.TypeUnknown && v.Address.IsValid(), func() resource.Resource {
		r := k8s.NewNodeIP(k8s.NamespaceName, k8s.KubeletID)
		r.TypedSpec().Addresses = []netip.Addr{v.Address.Addr()}
		return r
	})
}

// endpoints are where control planes are: as discovery knows them, and the host of the cluster's endpoint.
func endpoints(v View) []resource.Resource {
	discovered := k8s.NewEndpoint(k8s.ControlPlaneNamespaceName, k8s.ControlPlaneDiscoveredEndpointsID)
	discovered.TypedSpec().Addresses = slices.Clone(v.ControlPlanes)
	list := []resource.Resource{discovered}
	if v.Type() == machine.TypeUnknown || v.Active.Cluster() == nil || v.Active.Cluster().Endpoint() == nil {
		return list
	}
	fromConfig := k8s.NewEndpoint(k8s.ControlPlaneNamespaceName, k8s.ControlPlaneKubernetesEndpointsID)
	host := v.Active.Cluster().Endpoint().Hostname()
	if a, err := netip.ParseAddr(host); err == nil {
		fromConfig.TypedSpec().Addresses = []netip.Addr{a}
	} else {
		fromConfig.TypedSpec().Hosts = []string{host}
	}
	return append(list, fromConfig)
}

func etcdMember(v View) []resource.Resource {
	return when(v.Workload.EtcdMemberID != 0, func() resource.Resource {
		r := etcd.NewMember(etcd.NamespaceName, etcd.LocalMemberID)
		r.TypedSpec().MemberID = etcd.FormatMemberID(v.Workload.EtcdMemberID)
		return r
	})
}
