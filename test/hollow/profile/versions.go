// SPDX-License-Identifier: Apache-2.0

package profile

var profiles = []*Profile{
	{
		Minor: "1.12", Sha: "unknown", Built: "", GoVersion: "go1.25.9",
		OldestUpgradeFrom: 10, NewestDowngradeFrom: 13, OldestKubernetes: 30, NewestKubernetes: 35,
		MaintenanceServer: true, RebootsOnApply: true, StreamErrorsInData: true,
		MissingTypes: []string{
			"APIServiceConfigs.runtime.talos.dev", "Environments.runtime.talos.dev", "ImageVerificationRules.security.talos.dev",
			"KubeletKubeconfigs.kubernetes.talos.dev", "RoutingRuleSpecs.net.talos.dev", "RoutingRuleStatuses.net.talos.dev",
			"ServicePIDs.runtime.talos.dev", "TUFTrustedRoots.security.talos.dev",
		},
		ExtraTypes: []ExtraType{
			{Type: "MaintenanceServiceCertificates.secrets.talos.dev", Namespace: "secrets", Sensitive: true},
		},
		MissingKinds: []string{
			"BlackholeRouteConfig", "EnvironmentConfig", "ExternalVolumeConfig", "ImageVerificationConfig", "KubeSpanConfig",
			"RoutingRuleConfig", "TCPProbeConfig", "VRFConfig",
		},
		MissingKeys: map[string][]string{"UserVolumeConfig": {"mount"}, "VolumeConfig": {"mount"}},
	},
	{
		Minor: "1.13", Sha: "unknown", Built: "", GoVersion: "go1.26.7",
		OldestUpgradeFrom: 11, NewestDowngradeFrom: 14, OldestKubernetes: 31, NewestKubernetes: 36,
		Containerd: true, RebootsOnApply: true, StreamErrorsInData: true,
	},
	{
		Minor: "1.14", Sha: "unknown", Built: "", GoVersion: "go1.26.7",
		OldestUpgradeFrom: 12, NewestDowngradeFrom: 15, OldestKubernetes: 32, NewestKubernetes: 37,
		Containerd: true, RefusesUnknownModes: true, RunsFromMemory: true,
		ExtraTypes: []ExtraType{
			{Type: "BootIDs.runtime.talos.dev", Namespace: "runtime", ID: "boot-id", Fields: []string{"bootID"}},
			{Type: "ImageFactorySchematics.runtime.talos.dev", Namespace: "runtime", ID: "image-factory-schematic", Fields: []string{"schematicId", "flavor", "apiUrl"}},
		},
		LaterKinds: []string{
			"BGPInstanceConfig", "CRIBaseRuntimeSpecConfig", "CRICustomizationConfig", "ContainerConfig", "DiscoveryIdentityConfig",
			"DiscoveryServiceConfig", "EtcFileConfig", "FilesystemScrubConfig", "FilesystemTrimConfig", "HTTPProbeConfig", "ImageCacheConfig",
			"KernelModuleConfig", "KubeAPIServerCAConfig", "KubeAPIServerConfig", "KubeAdmissionControlConfig", "KubeAggregatorCAConfig",
			"KubeAuditPolicyConfig", "KubeAuthenticationConfig", "KubeAuthorizerConfig", "KubeClusterConfig", "KubeControllerManagerConfig",
			"KubeCoreDNSConfig", "KubeCredentialProviderConfig", "KubeEtcdEncryptionConfig", "KubeExternalManifestConfig",
			"KubeFlannelCNIConfig", "KubeInlineManifestConfig", "KubeNetworkConfig", "KubeNodeConfig", "KubePrismConfig", "KubeProxyConfig",
			"KubeSchedulerConfig", "KubeServiceAccountConfig", "KubeStaticPodConfig", "KubeTalosAPIAccessConfig", "KubeletConfig",
			"LVMLogicalVolumeConfig", "LVMVolumeGroupConfig", "RAIDArrayConfig", "SecurityProfileConfig", "SysctlConfig", "SysfsConfig",
			"UdevRulesConfig", "UnattendedInstallConfig", "VethConfig",
		},
		NotPlayed: []string{
			"LVMService and MDService, and Teardown and TeardownAndDestroy of cosi.resource.State: the API of 1.13 has no such methods, so they are unknown here",
			"more fields of resources (BIOSVersion of SystemInformation, FirmwareVersion of Disk): the machinery of 1.13 has no room for them",
			"Bootstrap's refusals that need a document of 1.14 or a pending unattended install, and readiness without Kubernetes",
		},
	},
}
