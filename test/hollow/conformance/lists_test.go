// SPDX-License-Identifier: Apache-2.0

package conformance

import "maps"

// Reasons why a list may differ from the recorded one.
const (
	hardware = "the recorded machine has other hardware, links and addresses"
	disks    = "the recorded node was a container, which has no disks, no META and no installation"
	services = "the recorded node was a container, which runs fewer services; and here the kubelet is up"
	internal = "made by a controller inside Talos for another one; no client of the API reads it, so a hollow node does not make it"
	kernel   = "there is no kernel to tell the state of"
	platform = "the recorded node was a container, which has no kernel command line and no machine token"
)

// everywhere are the types whose list differs in both modes.
var everywhere = map[string]string{
	"AddressStatuses.net.talos.dev":             hardware,
	"BlockSymlinks.block.talos.dev":             disks,
	"DiscoveredVolumes.block.talos.dev":         disks,
	"Disks.block.talos.dev":                     disks,
	"EthernetStatuses.net.talos.dev":            hardware,
	"HardwareAddresses.net.talos.dev":           hardware,
	"KernelCmdlines.runtime.talos.dev":          platform,
	"KernelParamDefaultSpecs.runtime.talos.dev": kernel,
	"KernelParamStatuses.runtime.talos.dev":     kernel,
	"LinkStatuses.net.talos.dev":                hardware,
	"MemoryModules.hardware.talos.dev":          hardware,
	"MetaLoads.runtime.talos.dev":               disks,
	"PCIDevices.hardware.talos.dev":             hardware,
	"Processors.hardware.talos.dev":             hardware,
	"RouteStatuses.net.talos.dev":               kernel,
	"RoutingRuleStatuses.net.talos.dev":         kernel,
	"ServicePIDs.runtime.talos.dev":             services,
	"Services.v1alpha1.talos.dev":               services,
	"UniqueMachineTokens.runtime.talos.dev":     platform,
	"VolumeMountRequests.block.talos.dev":       internal,
}

var maintenanceLists = everywhere

var configuredLists = merged(everywhere, map[string]string{
	"AddressSpecs.net.talos.dev":                     internal,
	"AdmissionControlConfigs.kubernetes.talos.dev":   internal,
	"Affiliates.cluster.talos.dev":                   internal,
	"ApiCertificates.secrets.talos.dev":              internal,
	"AuditPolicyConfigs.kubernetes.talos.dev":        internal,
	"AuthorizationConfigs.kubernetes.talos.dev":      internal,
	"BootstrapManifestsConfigs.kubernetes.talos.dev": internal,
	"CertSANs.secrets.talos.dev":                     internal,
	"ConfigStatuses.kubernetes.talos.dev":            internal,
	"DNSResolveCaches.net.talos.dev":                 internal,
	"DNSUpstreams.net.talos.dev":                     internal,
	"DiscoveryConfigs.cluster.talos.dev":             internal,
	"EncryptionSalts.secrets.talos.dev":              internal,
	"EtcFileSpecs.files.talos.dev":                   internal,
	"EtcFileStatuses.files.talos.dev":                internal,
	"EtcdConfigs.etcd.talos.dev":                     internal,
	"EtcdSecrets.secrets.talos.dev":                  internal,
	"ExtensionStatuses.runtime.talos.dev":            "the installer image of this test names a schematic",
	"ExtraManifestsConfigs.kubernetes.talos.dev":     internal,
	"KubePrismConfigs.kubernetes.talos.dev":          internal,
	"KubePrismEndpoints.kubernetes.talos.dev":        internal,
	"KubePrismStatuses.kubernetes.talos.dev":         internal,
	"KubeSpanConfigs.kubespan.talos.dev":             internal,
	"KubeletConfigs.kubernetes.talos.dev":            internal,
	"KubeletSecrets.secrets.talos.dev":               internal,
	"KubernetesAccessConfigs.cluster.talos.dev":      internal,
	"KubernetesDynamicCerts.secrets.talos.dev":       internal,
	"KubernetesSecrets.secrets.talos.dev":            internal,
	"LinkSpecs.net.talos.dev":                        internal,
	"Manifests.kubernetes.talos.dev":                 internal,
	"MountRequests.block.talos.dev":                  internal,
	"MountStatuses.block.talos.dev":                  internal,
	"NodeIPConfigs.kubernetes.talos.dev":             internal,
	"PKIStatuses.etcd.talos.dev":                     internal,
	"RegistryConfigs.cri.talos.dev":                  internal,
	"SecretStatuses.kubernetes.talos.dev":            internal,
	"SystemDisks.block.talos.dev":                    disks,
	"TrustdCertificates.secrets.talos.dev":           internal,
	"UserDiskConfigStatuses.block.talos.dev":         internal,
	"VolumeConfigs.block.talos.dev":                  internal,
	"VolumeMountStatuses.block.talos.dev":            internal,
	"VolumeStatuses.block.talos.dev":                 "only the volumes with a place on a disk are shown, not the folders in them",
})

func merged(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}
