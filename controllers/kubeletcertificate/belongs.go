// SPDX-License-Identifier: Apache-2.0

package kubeletcertificate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// foreign says which name or address in a request isn't the machine's; empty if all are. The certificate authority is
// the one that everybody knows the API server by, so a machine gets nothing that others are reached at, whatever it says
// of itself.
func foreign(request *request, node string, m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster, all []*v1alpha1.TalosMachine) string {
	if m.Spec.Hostname != "" && !strings.EqualFold(node, m.Spec.Hostname) && !strings.EqualFold(node, firstLabel(m.Spec.Hostname)) {
		return fmt.Sprintf("the machine was approved with the hostname %s, and its node is called %s", m.Spec.Hostname, quote(node))
	}
	for _, name := range request.names {
		if why := foreignName(name, node, m, cluster); why != "" {
			return why
		}
	}
	for _, address := range request.addresses {
		if why := foreignAddress(address, m, cluster, all); why != "" {
			return why
		}
	}
	return ""
}

// foreignName says why a DNS name isn't the machine's. What a machine calls itself counts only as far as it begins with
// the name of its node.
func foreignName(name, node string, m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster) string {
	if apiName(name, cluster) {
		return fmt.Sprintf("%s is a name of the Kubernetes API, not of the machine", quote(name))
	}
	own := []string{node, m.Spec.Hostname}
	if strings.EqualFold(firstLabel(m.Status.Hostname), node) {
		own = append(own, m.Status.Hostname)
	}
	if slices.ContainsFunc(own, func(mine string) bool { return mine != "" && strings.EqualFold(mine, name) }) {
		return ""
	}
	return fmt.Sprintf("%s is no name of the machine, which is node %s", quote(name), node)
}

// apiName tells whether clients of the Kubernetes API, or of the machine itself, know what they reach by that name.
func apiName(name string, cluster *v1alpha1.TalosCluster) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	domain := strings.ToLower(cluster.Spec.Network.DNSDomain)
	return name == strings.ToLower(cluster.Spec.ControlPlane.Endpoint.Host) || name == "localhost" || name == "kubernetes" ||
		strings.HasPrefix(name, "kubernetes.default") || domain != "" && (name == domain || strings.HasSuffix(name, "."+domain))
}

// foreignAddress says why an address isn't the machine's.
func foreignAddress(address netip.Addr, m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster, all []*v1alpha1.TalosMachine) string {
	if why := sharedAddress(address, m, cluster); why != "" {
		return why
	}
	if !slices.Contains(declared(m), address) && !slices.Contains(observed(m), address) {
		return fmt.Sprintf("%s is none of the machine's addresses, which are %s; it is looked at again when they change", address, join(slices.Concat(declared(m), observed(m))))
	}
	for _, other := range all {
		if other.UID == m.UID || other.Spec.ApprovalState != v1alpha1.ApprovalApproved {
			continue
		}
		answers := meta.IsStatusConditionTrue(other.Status.Conditions, v1alpha1.ConditionReachable)
		if slices.Contains(declared(other), address) || answers && slices.Contains(observed(other), address) {
			return fmt.Sprintf("%s is also an address of machine %s", address, other.Name)
		}
	}
	return ""
}

// sharedAddress says why an address is no single machine's.
func sharedAddress(address netip.Addr, m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster) string {
	if address == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || address == netip.IPv6Loopback() || address.IsUnspecified() || address.IsMulticast() {
		return fmt.Sprintf("%s is no address of one machine", address)
	}
	if m.Spec.Role != v1alpha1.RoleControlPlane && address.String() == cluster.Spec.ControlPlane.Endpoint.Host {
		return fmt.Sprintf("%s is the address of the Kubernetes API, and the machine is a worker", address)
	}
	for _, text := range cluster.Spec.Network.ServiceCIDRs {
		if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Contains(address) {
			return fmt.Sprintf("%s is an address of Services", address)
		}
	}
	return ""
}

// declared are the addresses that a person gave the machine.
func declared(m *v1alpha1.TalosMachine) []netip.Addr {
	var addresses []netip.Addr
	if address, err := netip.ParseAddr(m.Spec.Address); err == nil {
		addresses = append(addresses, address.Unmap())
	}
	if m.Spec.Network == nil {
		return addresses
	}
	for _, text := range m.Spec.Network.Addresses {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			addresses = append(addresses, prefix.Addr().Unmap())
		}
	}
	return addresses
}

// observed are the addresses that the machine was seen to have.
func observed(m *v1alpha1.TalosMachine) []netip.Addr {
	var addresses []netip.Addr
	for _, text := range m.Status.Addresses {
		if address, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, address.Unmap())
		}
	}
	return addresses
}

func firstLabel(name string) string {
	label, _, _ := strings.Cut(name, ".")
	return label
}

func join(addresses []netip.Addr) string {
	const most = 8
	var texts []string
	for _, address := range addresses[:min(len(addresses), most)] {
		if text := address.String(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if len(texts) == 0 {
		return "not known yet"
	}
	return strings.Join(texts, ", ")
}
