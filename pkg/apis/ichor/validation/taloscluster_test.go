// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
)

func cluster() *ichor.TalosCluster {
	c := &ichor.TalosCluster{}
	c.Name = "prod"
	c.Spec = ichor.TalosClusterSpec{
		TalosVersion: "v1.14.5", KubernetesVersion: "v1.36.6", SecretsPolicy: ichor.SecretsPolicyRequire, DriftPolicy: ichor.DriftPolicyReport,
		SecretsRef:   ichor.SecretReference{Namespace: "ichor-system", Name: "prod-secrets"},
		ControlPlane: ichor.ControlPlane{Count: 3, Endpoint: ichor.Endpoint{Host: "10.0.0.10", Port: 6443}},
		Network:      ichor.ClusterNetwork{PodCIDRs: []string{"10.244.0.0/16"}, ServiceCIDRs: []string{"10.96.0.0/12"}, DNSDomain: "cluster.local"},
		Discovery:    ichor.Discovery{Interval: metav1.Duration{Duration: 5 * time.Minute}},
		Install:      ichor.Install{Registry: "factory.talos.dev"}, Apply: ichor.ApplyPolicy{MaxParallel: 10},
		Reprovision: ichor.Reprovision{ControlPlanes: ichor.ReprovisionAutomatic}, DeletionPolicy: ichor.ClusterDeletionRefuse,
	}
	return c
}

func TestCluster(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*ichor.TalosCluster)
		want   []string
	}{
		"an ordinary one": {func(*ichor.TalosCluster) {}, nil},
		"dual stack, a DNS name, a mirror and a schematic": {func(c *ichor.TalosCluster) {
			c.Spec.Network.PodCIDRs = []string{"10.244.0.0/16", "fd00:1::/64"}
			c.Spec.Network.ServiceCIDRs = []string{"10.96.0.0/12", "fd00:2::/112"}
			c.Spec.ControlPlane.Endpoint.Host = "api.prod.example.com"
			c.Spec.Install = ichor.Install{Registry: "mirror.example.com:5000/factory", SchematicID: strings.Repeat("0a", 32)}
			c.Spec.TalosVersion = "v1.14.0-beta.1"
			c.Spec.CNI.Cilium = &ichor.Cilium{Version: "1.20.4", Values: &ichor.JSONObject{Raw: []byte(`{"ipam":{"mode":"kubernetes"}}`)}}
			c.Spec.Discovery.Subnets = []ichor.DiscoverySubnet{{CIDR: "10.0.0.0/16"}, {CIDR: "fd00:3::/112"}}
			c.Spec.Discovery.Addresses = []string{"10.1.0.7"}
		}, nil},
		"a name that Talos couldn't use": {func(c *ichor.TalosCluster) { c.Name = "prod.example" }, []string{"metadata.name: \"prod.example\""}},
		"everything is wrong at once": {func(c *ichor.TalosCluster) {
			c.Spec = ichor.TalosClusterSpec{
				TalosVersion: "1.14", KubernetesVersion: "latest", SecretsPolicy: "Maybe", DriftPolicy: "Ignore",
				SecretsRef:   ichor.SecretReference{Namespace: "", Name: "Not OK"},
				ControlPlane: ichor.ControlPlane{Count: 11, Endpoint: ichor.Endpoint{Port: 70000}},
				Network:      ichor.ClusterNetwork{PodCIDRs: []string{"10.244.0.1/16"}, ServiceCIDRs: nil, DNSDomain: "-"},
				CNI:          ichor.CNI{Cilium: &ichor.Cilium{Version: "v1", Values: &ichor.JSONObject{Raw: []byte(`[]`)}}},
				Discovery: ichor.Discovery{
					Interval: metav1.Duration{Duration: time.Second}, ScanRequest: strings.Repeat("x", 65),
					Subnets:   []ichor.DiscoverySubnet{{CIDR: "10.0.0.0/8"}, {CIDR: "10.1.0.0/24"}, {CIDR: "x"}},
					Addresses: []string{"10.0.0.1", "10.0.0.1", "x"},
				},
				Install: ichor.Install{SchematicID: "x", Registry: "https://x"}, Hardening: ichor.Hardening{KernelLockdown: "total"}, DeletionPolicy: "Burn",
				Apply: ichor.ApplyPolicy{MaxParallel: 501}, Reprovision: ichor.Reprovision{ControlPlanes: "Never"},
			}
		}, []string{
			"spec.deletionPolicy: \"Burn\"",
			"spec.talosVersion: v1.14.5", "spec.kubernetesVersion: v1.36.6", "spec.secretsPolicy: \"Maybe\"", "spec.driftPolicy: \"Ignore\"",
			"spec.secretsRef.namespace: Required", "spec.secretsRef.name: \"Not OK\"", "spec.controlPlane.count: 9", "spec.controlPlane.endpoint.port: 65535",
			"spec.controlPlane.endpoint.host: Required", "spec.network.podCIDRs[0]: 10.244.0.0/16", "spec.network.serviceCIDRs: one range", "spec.network.dnsDomain: \"-\"",
			"spec.cni.cilium.version: 1.20.4", "spec.cni.cilium.values: object", "spec.discovery.interval: 10s", "spec.discovery.scanRequest: 64",
			"spec.discovery.subnets[0].cidr: 65536", "spec.discovery.subnets[1].cidr: overlaps", "spec.discovery.subnets[2].cidr: CIDR",
			"spec.discovery.addresses[1]: Duplicate", "spec.discovery.addresses[2]: IP address", "spec.install.schematicID: 64", "spec.install.registry: factory.talos.dev",
			"spec.hardening.kernelLockdown: \"total\"", "spec.apply.maxParallel: 500", "spec.reprovision.controlPlanes: \"Never\"",
		}},
		"two ranges of one family":  {func(c *ichor.TalosCluster) { c.Spec.Network.PodCIDRs = []string{"10.1.0.0/16", "10.2.0.0/16"} }, []string{"spec.network.podCIDRs: one of IPv4"}},
		"pods and services overlap": {func(c *ichor.TalosCluster) { c.Spec.Network.ServiceCIDRs = []string{"10.244.5.0/24"} }, []string{"spec.network.serviceCIDRs[0]: overlaps"}},
		"a key in the chart's values": {func(c *ichor.TalosCluster) {
			c.Spec.CNI.Cilium = &ichor.Cilium{Version: "1.20.4", Values: &ichor.JSONObject{Raw: []byte(`{"tls":{"key":"-----BEGIN RSA PRIVATE KEY-----\nMII"}}`)}}
		}, []string{"spec.cni.cilium.values: private key"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster()
			tc.change(c)
			expect(t, validation.ValidateTalosCluster(c), tc.want...)
		})
	}
}

func TestChangedCluster(t *testing.T) {
	t.Parallel()
	was := cluster()
	for n := range 3 {
		was.Status.ControlPlaneSlots = append(was.Status.ControlPlaneSlots, ichor.ControlPlaneSlot{Name: fmt.Sprint("m", n)})
	}
	for name, tc := range map[string]struct {
		change func(*ichor.TalosCluster)
		want   []string
	}{
		"versions and count":         {func(c *ichor.TalosCluster) { c.Spec.TalosVersion, c.Spec.ControlPlane.Count = "v1.14.6", 5 }, nil},
		"as low as the slots allow":  {func(c *ichor.TalosCluster) { c.Spec.ControlPlane.Count = 2 }, nil},
		"lower than the slots allow": {func(c *ichor.TalosCluster) { c.Spec.ControlPlane.Count = 1 }, []string{"spec.controlPlane.count: there are 3 (m0, m1, m2)"}},
		"another bundle":             {func(c *ichor.TalosCluster) { c.Spec.SecretsRef.Name = "other" }, []string{"spec.secretsRef: can't be changed"}},
		"another network":            {func(c *ichor.TalosCluster) { c.Spec.Network.DNSDomain = "other.local" }, []string{"spec.network: can't be changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := was.DeepCopy()
			tc.change(c)
			expect(t, validation.ValidateTalosClusterUpdate(c, was), tc.want...)
		})
	}
}

func TestAnEvenCountIsWarnedOf(t *testing.T) {
	t.Parallel()
	c := cluster()
	if got := validation.ClusterWarnings(c); len(got) > 0 {
		t.Errorf("odd count: %q", got)
	}
	c.Spec.ControlPlane.Count = 2
	if got := validation.ClusterWarnings(c); len(got) != 1 || !strings.HasPrefix(got[0], "spec.controlPlane.count: ") {
		t.Errorf("even count: %q", got)
	}
}

func TestClusterStatus(t *testing.T) {
	t.Parallel()
	c := cluster()
	c.Status.Discovery = ichor.DiscoveryStatus{Phase: ichor.DiscoveryIdle, Hosts: []ichor.DiscoveredHost{{Address: "10.0.0.1", Class: ichor.HostNotTalos}}}
	expect(t, validation.ValidateTalosClusterStatusUpdate(c, cluster()))
	c.Status.Discovery = ichor.DiscoveryStatus{Phase: "Waiting"}
	for n := range 257 {
		c.Status.Discovery.Hosts = append(c.Status.Discovery.Hosts, ichor.DiscoveredHost{Address: fmt.Sprintf("10.0.%d.%d", n/256, n%256), Class: ichor.HostNotTalos})
	}
	c.Status.Discovery.Hosts[1] = ichor.DiscoveredHost{Address: "x", Class: "Odd"}
	expect(t, validation.ValidateTalosClusterStatusUpdate(c, cluster()), "status.discovery.phase: \"Waiting\"", "status.discovery.hosts: 256",
		"status.discovery.hosts[1].address: \"x\"", "status.discovery.hosts[1].class: \"Odd\"")
}
