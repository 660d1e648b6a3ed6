// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// base is what Talos' generator makes for the role.
func base(bundle *secrets.Bundle, cluster *v1alpha1.TalosCluster, m *v1alpha1.TalosMachine, facts Facts) (coreconfig.Provider, error) {
	contract, err := Contract(facts.MaintenanceVersion, facts.Versions.Talos, facts.Versions.ConfigContract)
	if err != nil {
		return nil, err
	}
	for _, version := range KubernetesVersions(facts.Versions) {
		if err := checkKubernetes(version, facts.MaintenanceVersion, facts.Versions.Talos); err != nil {
			return nil, err
		}
	}
	role, err := talosRole(m.Spec.Role)
	if err != nil {
		return nil, err
	}
	spec := cluster.Spec
	secureBoot := spec.Hardening.SecureBoot || facts.Inventory != nil && facts.Inventory.SecureBoot
	options := []generate.Option{
		generate.WithSecretsBundle(bundle),
		generate.WithVersionContract(contract),
		generate.WithDNSDomain(spec.Network.DNSDomain),
		generate.WithInstallImage(InstallerFor(cluster, facts.Inventory, facts.Versions)),
		generate.WithAdditionalSubjectAltNames([]string{spec.ControlPlane.Endpoint.Host}),
	}
	if spec.CNI.Cilium != nil {
		options = append(options, generate.WithClusterCNIConfig(&talosv1alpha1.CNIConfig{CNIName: "none"}))
	}
	input, err := generate.NewInput(cluster.Name, endpointURL(spec.ControlPlane.Endpoint), strings.TrimPrefix(facts.Versions.Kubernetes, "v"), options...)
	if err != nil {
		return nil, fmt.Errorf("prepare Talos' generator for cluster %s: %w", cluster.Name, err)
	}
	input.PodNet = spec.Network.PodCIDRs
	input.ServiceNet = spec.Network.ServiceCIDRs
	provider, err := input.Config(role)
	if err != nil {
		return nil, fmt.Errorf("generate the base configuration of a %s: %w", m.Spec.Role, err)
	}
	provider, err = provider.PatchV1Alpha1(func(v1 *talosv1alpha1.Config) error {
		setComponents(v1.ClusterConfig, facts.Versions)
		if spec.Hardening.KubeletServingCertificates {
			v1.MachineConfig.MachineKubelet.KubeletExtraArgs = talosv1alpha1.Args{
				"rotate-server-certificates": talosv1alpha1.NewArgValue("true", nil),
			}
		}
		if rendersLockdown(cluster, facts, secureBoot) {
			setLockdown(v1, spec.Hardening.KernelLockdown)
		}
		if spec.Hardening.AuditPolicy == v1alpha1.AuditPolicyIchor {
			if err := setAuditPolicy(v1); err != nil {
				return err
			}
		}
		if spec.CNI.Cilium != nil {
			disabled := true
			v1.ClusterConfig.ProxyConfig = proxy(v1.ClusterConfig.ProxyConfig, m.Spec.Role, &disabled)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("write the settings of cluster %s into the configuration: %w", cluster.Name, err)
	}
	return provider, nil
}

func endpointURL(endpoint v1alpha1.Endpoint) string {
	return "https://" + net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port)))
}

func talosRole(role v1alpha1.MachineRole) (machine.Type, error) {
	switch role {
	case v1alpha1.RoleControlPlane:
		return machine.TypeControlPlane, nil
	case v1alpha1.RoleWorker:
		return machine.TypeWorker, nil
	default:
		return machine.TypeUnknown, fmt.Errorf("spec.role: %q is neither controlplane nor worker", role)
	}
}

// proxy switches kube-proxy off on control planes, which alone render its manifest.
func proxy(have *talosv1alpha1.ProxyConfig, role v1alpha1.MachineRole, disabled *bool) *talosv1alpha1.ProxyConfig {
	if role != v1alpha1.RoleControlPlane {
		return have
	}
	if have == nil {
		have = &talosv1alpha1.ProxyConfig{}
	}
	have.Disabled = disabled
	return have
}
