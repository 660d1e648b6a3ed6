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

// Defaults of the other kinds.
const (
	DefaultPatchPriority      = 100
	DefaultGateTimeout        = 30 * time.Minute
	DefaultDrainTimeout       = 10 * time.Minute
	DefaultTimeZone           = "UTC"
	DefaultRetentionCount     = 28
	DefaultRegion             = "us-east-1"
	DefaultCredentialTTL      = time.Hour
	DefaultUserCertificateTTL = 24 * time.Hour
	DefaultControllerReplicas = 2
	DefaultUIReplicas         = 2
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
	setDefault(&spec.DeletionPolicy, ClusterDeletionRefuse)
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

// SetDefaults_TalosConfigPatchSpec fills what was left out of a patch.
func SetDefaults_TalosConfigPatchSpec(spec *TalosConfigPatchSpec) {
	setDefaultPointer(&spec.Priority, DefaultPatchPriority)
}

// SetDefaults_TalosConfigPatchPreviewSpec fills what was left out of a question.
func SetDefaults_TalosConfigPatchPreviewSpec(spec *TalosConfigPatchPreviewSpec) {
	setDefault(&spec.Change, PatchWrite)
}

// SetDefaults_TalosOperationSpec fills what was left out of an operation.
func SetDefaults_TalosOperationSpec(spec *TalosOperationSpec) {
	setDefault(&spec.Mode, OperationModeRun)
	setDefaultPointer(&spec.Drain.Timeout, metav1.Duration{Duration: DefaultDrainTimeout})
	setDefaultPointer(&spec.Drain.SkipWaitForDeleteTimeout, metav1.Duration{})
	// Not the mode of a reboot: server-side apply takes "reboot: {}" away with the default in it when whoever owned the
	// default gives it up, as kubectl does when it changes over from client-side apply. Empty is the default.
	for i := range spec.Gates {
		setDefaultPointer(&spec.Gates[i].Timeout, metav1.Duration{Duration: DefaultGateTimeout})
	}
	for i := range spec.Windows {
		setDefault(&spec.Windows[i].TimeZone, DefaultTimeZone)
	}
}

// SetDefaults_TalosEtcdBackupSpec fills what was left out of a backup.
func SetDefaults_TalosEtcdBackupSpec(spec *TalosEtcdBackupSpec) {
	setDefault(&spec.TimeZone, DefaultTimeZone)
	setDefault(&spec.Retention.Count, DefaultRetentionCount)
}

// SetDefaults_TalosStorageSpec fills what was left out of a storage.
func SetDefaults_TalosStorageSpec(spec *TalosStorageSpec) {
	setDefault(&spec.Region, DefaultRegion)
	setDefault(&spec.Addressing, BucketAddressingPath)
	setDefault(&spec.Checksums, ChecksumsWhenRequired)
}

// SetDefaults_TalosCredentialRequestSpec fills what was left out of a request.
func SetDefaults_TalosCredentialRequestSpec(spec *TalosCredentialRequestSpec) {
	setDefaultPointer(&spec.TTL, metav1.Duration{Duration: DefaultCredentialTTL})
}

// SetDefaults_IchorInstallationSpec fills what was left out of an installation.
func SetDefaults_IchorInstallationSpec(spec *IchorInstallationSpec) {
	setDefaultPointer(&spec.Replicas.Controller, DefaultControllerReplicas)
	setDefaultPointer(&spec.Replicas.UI, DefaultUIReplicas)
	setDefault(&spec.UI.Exposure, ExposureClusterIP)
}

// SetDefaults_IchorUserSpec fills what was left out of a user.
func SetDefaults_IchorUserSpec(spec *IchorUserSpec) {
	if spec.CertificateRequest != nil {
		setDefaultPointer(&spec.CertificateRequest.TTL, metav1.Duration{Duration: DefaultUserCertificateTTL})
	}
}

func setDefaultPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
