// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Defaults of a TalosCluster.
const (
	DefaultTalosVersion      = "v1.14.5"
	DefaultKubernetesVersion = "v1.36.6"
	DefaultCiliumVersion     = "1.20.4"
	DefaultInstallRegistry   = "factory.talos.dev"
	DefaultEndpointPort      = 6443
	DefaultPodCIDR           = "10.244.0.0/16"
	DefaultServiceCIDR       = "10.96.0.0/12"
	DefaultDNSDomain         = "cluster.local"
	DefaultMaxParallel       = 10
	DefaultDiscoveryInterval = 5 * time.Minute
)

func addDefaultingFuncs(scheme *runtime.Scheme) error {
	return RegisterDefaults(scheme)
}

// SetDefaults_TalosClusterSpec fills what was left out of a cluster.
func SetDefaults_TalosClusterSpec(spec *TalosClusterSpec) {
	setDefault(&spec.TalosVersion, DefaultTalosVersion)
	setDefault(&spec.KubernetesVersion, DefaultKubernetesVersion)
	setDefault(&spec.SecretsPolicy, SecretsPolicyRequire)
	setDefault(&spec.DriftPolicy, DriftPolicyReport)
	setDefault(&spec.ControlPlane.Endpoint.Port, DefaultEndpointPort)
	setDefault(&spec.Network.DNSDomain, DefaultDNSDomain)
	setDefault(&spec.Install.Registry, DefaultInstallRegistry)
	setDefault(&spec.Apply.MaxParallel, DefaultMaxParallel)
	setDefault(&spec.Reprovision.ControlPlanes, ReprovisionAutomatic)
	setDefault(&spec.Discovery.Interval, metav1.Duration{Duration: DefaultDiscoveryInterval})
	if len(spec.Network.PodCIDRs) == 0 {
		spec.Network.PodCIDRs = []string{DefaultPodCIDR}
	}
	if len(spec.Network.ServiceCIDRs) == 0 {
		spec.Network.ServiceCIDRs = []string{DefaultServiceCIDR}
	}
	if spec.CNI.Cilium != nil {
		setDefault(&spec.CNI.Cilium.Version, DefaultCiliumVersion)
	}
}

// SetDefaults_TalosMachineSpec fills what was left out of a machine.
func SetDefaults_TalosMachineSpec(spec *TalosMachineSpec) {
	setDefault(&spec.Origin, MachineDiscovered)
	setDefault(&spec.ApprovalState, ApprovalPending)
	setDefault(&spec.DeletionPolicy, DeletionReset)
	if spec.Network != nil {
		setDefault(&spec.Network.Addressing, AddressingDHCP)
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
