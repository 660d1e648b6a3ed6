// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Facts is what rendering must know of the machine itself.
type Facts struct {
	// MaintenanceVersion is the Talos version that will read the configuration first; empty if it doesn't matter any more.
	MaintenanceVersion string
	// Inventory is what the machine has now. Every disk and interface that was decided on is looked up in it.
	Inventory *v1alpha1.MachineInventory
	// Versions are what the machine is to have.
	Versions v1alpha1.SettledVersions
}

// Settle decides, from the cluster's intent, the versions that a machine is installed with: its own schematic if it
// reports one, else the cluster's, else the plain one.
func Settle(cluster *v1alpha1.TalosCluster, reportedSchematicID string) v1alpha1.SettledVersions {
	schematic := reportedSchematicID
	if schematic == "" {
		schematic = cluster.Spec.Install.SchematicID
	}
	if schematic == "" {
		schematic = PlainSchematicID
	}
	return v1alpha1.SettledVersions{
		Talos:       cluster.Spec.TalosVersion,
		Kubernetes:  cluster.Spec.KubernetesVersion,
		SchematicID: schematic,
	}
}

// Render gives the configuration of an approved machine. The result holds the cluster's secrets; Redact it before it is
// shown. Errors name the field of the machine or the cluster that can't be rendered, and hold no secret.
func Render(bundle *secrets.Bundle, cluster *v1alpha1.TalosCluster, m *v1alpha1.TalosMachine, facts Facts) ([]byte, error) {
	system, err := resolveDisks(m.Spec.Disks, facts.Inventory)
	if err != nil {
		return nil, err
	}
	provider, err := base(bundle, cluster, m, facts)
	if err != nil {
		return nil, err
	}
	documents, err := decidedDocuments(m, facts.Inventory)
	if err != nil {
		return nil, err
	}
	effective, err := merge(provider, cluster, m, system, documents)
	if err != nil {
		return nil, err
	}
	text, err := effective.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, errors.New("write the machine configuration: encoding failed")
	}
	return text, validate(text)
}

// Hash is the hexadecimal SHA-256 of a configuration's bytes.
func Hash(configuration []byte) string {
	sum := sha256.Sum256(configuration)
	return hex.EncodeToString(sum[:])
}

// Role reads the role that a configuration gives a machine.
func Role(configuration []byte) (v1alpha1.MachineRole, error) {
	provider, err := configloader.NewFromBytes(configuration)
	if err != nil || provider.Machine() == nil {
		// The loader's own words may quote the text.
		return "", errors.New("read the role of a machine configuration: it can't be read as one")
	}
	switch kind := provider.Machine().Type(); kind {
	case machine.TypeInit, machine.TypeControlPlane:
		return v1alpha1.RoleControlPlane, nil
	case machine.TypeWorker:
		return v1alpha1.RoleWorker, nil
	default:
		return "", fmt.Errorf("read the role of a machine configuration: %s is neither controlplane nor worker", kind)
	}
}

// Redact replaces every secret of a configuration by asterisks.
func Redact(configuration []byte) ([]byte, error) {
	provider, err := configloader.NewFromBytes(configuration)
	if err != nil {
		// The loader's own words may quote the text.
		return nil, errors.New("redact a machine configuration: it can't be read as one")
	}
	text, err := provider.RedactSecrets("***").EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, errors.New("redact a machine configuration: encoding failed")
	}
	return text, nil
}

// base is what Talos' generator makes for the role.
func base(bundle *secrets.Bundle, cluster *v1alpha1.TalosCluster, m *v1alpha1.TalosMachine, facts Facts) (coreconfig.Provider, error) {
	contract, err := Contract(facts.MaintenanceVersion, facts.Versions.Talos)
	if err != nil {
		return nil, err
	}
	if err := checkKubernetes(facts.Versions.Kubernetes, facts.MaintenanceVersion, facts.Versions.Talos); err != nil {
		return nil, err
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
		generate.WithInstallImage(InstallerImage(spec.Install.Registry, facts.Versions.SchematicID, facts.Versions.Talos, secureBoot)),
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

// merge puts what was decided on top of the generator's documents.
func merge(provider coreconfig.Provider, cluster *v1alpha1.TalosCluster, m *v1alpha1.TalosMachine, system v1alpha1.DiskMatch, decided []config.Document) (coreconfig.Provider, error) {
	provider, err := provider.PatchV1Alpha1(func(v1 *talosv1alpha1.Config) error {
		v1.MachineConfig.MachineInstall.InstallDisk = ""
		v1.MachineConfig.MachineInstall.InstallDiskSelector = &talosv1alpha1.InstallDiskSelector{Serial: system.Serial, WWID: system.WWID}
		labels := map[string]string{}
		for key, value := range v1.MachineConfig.MachineNodeLabels {
			labels[key] = value
		}
		for key, value := range m.Spec.NodeLabels {
			labels[key] = value
		}
		v1.MachineConfig.MachineNodeLabels = labels
		if cluster.Spec.Hardening.KubeletServingCertificates {
			v1.MachineConfig.MachineKubelet.KubeletExtraArgs = talosv1alpha1.Args{
				"rotate-server-certificates": talosv1alpha1.NewArgValue("true", nil),
			}
		}
		if cluster.Spec.CNI.Cilium != nil {
			disabled := true
			v1.ClusterConfig.ProxyConfig = proxy(v1.ClusterConfig.ProxyConfig, m.Spec.Role, &disabled)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("write what approval decided into the configuration: %w", err)
	}
	var documents []config.Document
	for _, document := range provider.Documents() {
		if _, generated := document.(*network.HostnameConfigV1Alpha1); generated && m.Spec.Hostname != "" {
			continue
		}
		documents = append(documents, document)
	}
	merged, err := container.New(append(documents, decided...)...)
	if err != nil {
		return nil, fmt.Errorf("put the configuration's documents together: %w", err)
	}
	return merged, nil
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
