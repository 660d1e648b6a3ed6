// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// Bounds of a TalosCluster.
const (
	// MaxControlPlanes is more than any etcd should have voters.
	MaxControlPlanes = 9
	// MinDiscoveryInterval is the shortest time between two scans.
	MinDiscoveryInterval = 10 * time.Second
	// MaxSubnetHostBits bounds a subnet to 65,536 addresses.
	MaxSubnetHostBits = 16
	// maxSubnets and maxAddresses bound what a scan goes through.
	maxSubnets, maxAddresses = 64, 1024
	maxScanRequest           = 64
	maxParallel              = 500
	// maxValues bounds the chart's values: etcd takes requests of 1.5 MiB.
	maxValues = 512 << 10
)

var (
	versionWithV    = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z][0-9A-Za-z.-]*)?$`)
	versionWithoutV = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z][0-9A-Za-z.-]*)?$`)
	schematic       = regexp.MustCompile(`^[0-9a-f]{64}$`)
	registryName    = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:\d{1,5})?(/[a-z0-9]+([._-][a-z0-9]+)*)*$`)
)

// ValidateTalosCluster judges a new cluster.
func ValidateTalosCluster(cluster *ichor.TalosCluster) field.ErrorList {
	errs := name(cluster.Name, field.NewPath("metadata", "name"), utilvalidation.IsDNS1123Label)
	errs = append(errs, validateClusterSpec(&cluster.Spec, field.NewPath("spec"))...)
	return append(errs, validateClusterDeletion(cluster, cluster, field.NewPath("spec"))...)
}

// ValidateTalosClusterUpdate judges a change through the main resource.
func ValidateTalosClusterUpdate(cluster, was *ichor.TalosCluster) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateClusterSpec(&cluster.Spec, path)
	errs = append(errs, validateClusterDeletion(cluster, was, path)...)
	errs = append(errs, immutable(cluster.Spec.SecretsRef, was.Spec.SecretsRef, path.Child("secretsRef"),
		"can't be changed: the machines were made with this bundle")...)
	errs = append(errs, immutable(cluster.Spec.Network, was.Spec.Network, path.Child("network"),
		"can't be changed: the running cluster has these addresses")...)
	if held := len(was.Status.ControlPlaneSlots); held > int(cluster.Spec.ControlPlane.Count)+1 {
		var holders []string
		for _, slot := range was.Status.ControlPlaneSlots {
			holders = append(holders, slot.Name)
		}
		errs = append(errs, field.Invalid(path.Child("controlPlane", "count"), cluster.Spec.ControlPlane.Count, fmt.Sprintf(
			"allows %d approved control planes, and there are %d (%s): remove one first, then lower the count",
			cluster.Spec.ControlPlane.Count+1, held, strings.Join(holders, ", "))))
	}
	return errs
}

// ClusterWarnings tells of what is allowed and may be unwise.
func ClusterWarnings(cluster *ichor.TalosCluster) []string {
	var warnings []string
	if count := cluster.Spec.ControlPlane.Count; count%2 == 0 {
		warnings = append(warnings, fmt.Sprintf("spec.controlPlane.count: %d survives no more failures than %d; use an odd number", count, count-1))
	}
	return append(warnings, scanWarnings(&cluster.Spec.Discovery)...)
}

func validateClusterSpec(spec *ichor.TalosClusterSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, version(spec.TalosVersion, path.Child("talosVersion"), versionWithV, "v1.14.5")...)
	errs = append(errs, version(spec.KubernetesVersion, path.Child("kubernetesVersion"), versionWithV, "v1.36.6")...)
	errs = append(errs, name(spec.SecretsRef.Namespace, path.Child("secretsRef", "namespace"), utilvalidation.IsDNS1123Label)...)
	errs = append(errs, name(spec.SecretsRef.Name, path.Child("secretsRef", "name"), utilvalidation.IsDNS1123Subdomain)...)
	errs = append(errs, oneOf(spec.SecretsPolicy, path.Child("secretsPolicy"), ichor.SecretsPolicyRequire, ichor.SecretsPolicyGenerate)...)
	errs = append(errs, between(spec.ControlPlane.Count, 1, MaxControlPlanes, path.Child("controlPlane", "count"))...)
	errs = append(errs, validateEndpoint(spec.ControlPlane.Endpoint, path.Child("controlPlane", "endpoint"))...)
	errs = append(errs, validateClusterNetwork(&spec.Network, path.Child("network"))...)
	errs = append(errs, validateCNI(&spec.CNI, path.Child("cni"))...)
	errs = append(errs, oneOf(spec.DriftPolicy, path.Child("driftPolicy"), ichor.DriftPolicyReport, ichor.DriftPolicyReapply)...)
	errs = append(errs, validateDiscovery(&spec.Discovery, path.Child("discovery"))...)
	if id := spec.Install.SchematicID; id != "" && !schematic.MatchString(id) {
		errs = append(errs, field.Invalid(path.Child("install", "schematicID"), id, "must be a schematic of the Image Factory: 64 hexadecimal digits"))
	}
	if registry := spec.Install.Registry; !registryName.MatchString(registry) {
		errs = append(errs, field.Invalid(path.Child("install", "registry"), registry, "must be a registry's host, with a port or path if it has one, such as factory.talos.dev"))
	}
	errs = append(errs, oneOf(spec.Hardening.KernelLockdown, path.Child("hardening", "kernelLockdown"),
		ichor.KernelLockdownNone, ichor.KernelLockdownIntegrity, ichor.KernelLockdownConfidentiality)...)
	errs = append(errs, oneOf(spec.Hardening.AuditPolicy, path.Child("hardening", "auditPolicy"), ichor.AuditPolicyTalos, ichor.AuditPolicyIchor)...)
	errs = append(errs, between(spec.Apply.MaxParallel, 1, maxParallel, path.Child("apply", "maxParallel"))...)
	return append(errs, oneOf(spec.Reprovision.ControlPlanes, path.Child("reprovision", "controlPlanes"),
		ichor.ReprovisionAutomatic, ichor.ReprovisionConfirm)...)
}

func version(text string, path *field.Path, pattern *regexp.Regexp, example string) field.ErrorList {
	if pattern.MatchString(text) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, text, "must be a version such as "+example)}
}

func validateEndpoint(endpoint ichor.Endpoint, path *field.Path) field.ErrorList {
	errs := between(endpoint.Port, 1, 65535, path.Child("port"))
	host := endpoint.Host
	if host == "" {
		return append(errs, field.Required(path.Child("host"), "where the Kubernetes API is reached"))
	}
	if _, err := netip.ParseAddr(host); err == nil {
		_, bad := ipAddress(host, path.Child("host"))
		return append(errs, bad...)
	}
	if msgs := utilvalidation.IsDNS1123Subdomain(host); len(msgs) > 0 {
		errs = append(errs, field.Invalid(path.Child("host"), host, "must be an IP address or a DNS name"))
	}
	return errs
}

func validateClusterNetwork(spec *ichor.ClusterNetwork, path *field.Path) field.ErrorList {
	pods, errs := ranges(spec.PodCIDRs, path.Child("podCIDRs"))
	services, bad := ranges(spec.ServiceCIDRs, path.Child("serviceCIDRs"))
	errs = append(errs, bad...)
	for i, service := range services {
		for _, pod := range pods {
			if service.Overlaps(pod) {
				errs = append(errs, field.Invalid(path.Child("serviceCIDRs").Index(i), service.String(), "overlaps the pods' range "+pod.String()))
			}
		}
	}
	return append(errs, name(spec.DNSDomain, path.Child("dnsDomain"), utilvalidation.IsDNS1123Subdomain)...)
}

// ranges parses one range, or one of IPv4 and one of IPv6.
func ranges(texts []string, path *field.Path) ([]netip.Prefix, field.ErrorList) {
	var prefixes []netip.Prefix
	var errs field.ErrorList
	for i, text := range texts {
		prefix, bad := network(text, path.Index(i))
		errs = append(errs, bad...)
		if len(bad) == 0 {
			prefixes = append(prefixes, prefix)
		}
	}
	if len(texts) == 0 || len(texts) > 2 || len(prefixes) == 2 && prefixes[0].Addr().Is4() == prefixes[1].Addr().Is4() {
		errs = append(errs, field.Invalid(path, texts, "must be one range, or one of IPv4 and one of IPv6"))
	}
	return prefixes, errs
}

func validateCNI(cni *ichor.CNI, path *field.Path) field.ErrorList {
	if cni.Cilium == nil {
		return nil
	}
	path = path.Child("cilium")
	errs := version(cni.Cilium.Version, path.Child("version"), versionWithoutV, "1.20.4")
	values := cni.Cilium.Values
	if values == nil || len(values.Raw) == 0 {
		return errs
	}
	path = path.Child("values")
	var object map[string]any
	switch err := json.Unmarshal(values.Raw, &object); {
	case len(values.Raw) > maxValues:
		errs = append(errs, field.TooLong(path, "", maxValues))
	case err != nil || object == nil:
		errs = append(errs, field.Invalid(path, "", "must be an object"))
	}
	return append(errs, NoPrivateKey(values.Raw, path)...)
}

func validateDiscovery(discovery *ichor.Discovery, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(discovery.Subnets) > maxSubnets {
		errs = append(errs, field.TooMany(path.Child("subnets"), len(discovery.Subnets), maxSubnets))
	}
	var seen []netip.Prefix
	for i, subnet := range discovery.Subnets {
		path := path.Child("subnets").Index(i).Child("cidr")
		prefix, bad := network(subnet.CIDR, path)
		errs = append(errs, bad...)
		if len(bad) > 0 {
			continue
		}
		if prefix.Addr().BitLen()-prefix.Bits() > MaxSubnetHostBits {
			errs = append(errs, field.Invalid(path, subnet.CIDR, fmt.Sprintf("holds more than 65536 addresses; the largest is a /%d",
				prefix.Addr().BitLen()-MaxSubnetHostBits)))
		}
		for _, other := range seen {
			if other.Overlaps(prefix) {
				errs = append(errs, field.Invalid(path, subnet.CIDR, "overlaps "+other.String()))
			}
		}
		seen = append(seen, prefix)
	}
	if len(discovery.Addresses) > maxAddresses {
		errs = append(errs, field.TooMany(path.Child("addresses"), len(discovery.Addresses), maxAddresses))
	}
	known := map[netip.Addr]bool{}
	for i, text := range discovery.Addresses {
		address, bad := ipAddress(text, path.Child("addresses").Index(i))
		errs = append(errs, bad...)
		if len(bad) == 0 && known[address] {
			errs = append(errs, field.Duplicate(path.Child("addresses").Index(i), text))
		}
		known[address] = len(bad) == 0
	}
	if interval := discovery.Interval.Duration; interval < MinDiscoveryInterval {
		errs = append(errs, field.Invalid(path.Child("interval"), interval.String(), "must be at least "+MinDiscoveryInterval.String()))
	}
	return append(errs, tooLong(discovery.ScanRequest, maxScanRequest, path.Child("scanRequest"))...)
}
