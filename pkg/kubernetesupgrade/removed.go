// SPDX-License-Identifier: Apache-2.0

package kubernetesupgrade

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"
)

// removal is what a minor version of Kubernetes doesn't know any more.
type removal struct {
	minor uint
	// gates are known to all components or to none.
	gates []string
	flags map[Component][]string
	// plugins are of kube-apiserver's admission control.
	plugins []string
}

// removals of the minor versions that supported versions of Talos run. The feature gates are those which
// test/compatibility_lifecycle/reference/versioned_feature_list.yaml (in 1.31 and 1.32 the constants of type
// featuregate.Feature) of the version before names and that version doesn't; the flags those that the options of the
// component before register and that version's don't; the plugins those of pkg/kubeapiserver/options/plugins.go. All from
// Kubernetes' sources of v1.31.0 to v1.36.0 and v1.37.2; its changelog tells of most.
var removals = []removal{
	{minor: 32, gates: []string{
		"AllowServiceLBStatusOnNonLB", "CloudDualStackNodeIPs", "DRAControlPlaneController", "HPAContainerMetrics", "KMSv2", "KMSv2KDF",
		"LegacyServiceAccountTokenCleanUp", "MinDomainsInPodTopologySpread", "NewVolumeManagerReconstruction",
		"NodeOutOfServiceVolumeDetach", "PodHostIPs", "ServerSideApply", "ServerSideFieldValidation", "StableLoadBalancerNodeSet",
		"ValidatingAdmissionPolicy", "ZeroLimitedNominalConcurrencyShares",
	}},
	{
		minor: 33, gates: []string{
			"APIListChunking", "AdmissionWebhookMatchConditions", "AggregatedDiscoveryEndpoint", "AppArmor", "AppArmorFields", "CPUManager",
			"DisableCloudProviders", "DisableKubeletCloudCredentialProviders", "EfficientWatchResumption", "JobPodFailurePolicy",
			"KubeProxyDrainingTerminatingNodes", "PDBUnhealthyPodEvictionPolicy", "PersistentVolumeLastPhaseTransitionTime",
			"RemainingItemCount", "VolumeCapacityPriority", "WatchBookmark",
		},
		flags: map[Component][]string{APIServer: {"cloud-config", "cloud-provider"}},
	},
	{
		minor: 34, gates: []string{
			"DevicePluginCDIDevices", "ElasticIndexedJob", "LegacySidecarContainers", "PodDisruptionConditions", "StatefulSetStartOrdinal",
		},
		flags: map[Component][]string{Kubelet: {"cloud-config", "register-schedulable"}},
	},
	{
		minor: 35, gates: []string{
			"ComponentSLIs", "CronJobsScheduledAnnotation", "LoadBalancerIPMode", "PodIndexLabel", "ProbeHostPodSecurityStandards",
			"SizeMemoryBackedVolumes", "StatefulSetAutoDeletePVC", "StrictCostEnforcementForVAP", "StrictCostEnforcementForWebhooks",
			"UserNamespacesPodSecurityStandards",
		},
		flags: map[Component][]string{Kubelet: {"pod-infra-container-image"}},
	},
	{minor: 36, gates: []string{
		"CSIMigrationPortworx", "HonorPVReclaimPolicy", "InPlacePodVerticalScalingAllocatedStatus", "InTreePluginPortworxUnregister",
		"MemoryManager", "ServiceTrafficDistribution", "StructuredAuthorizationConfiguration", "TopologyAwareHints",
		"WatchFromStorageWithoutResourceVersion",
	}},
	{
		minor: 37, gates: []string{
			"APIServerTracing", "AnonymousAuthConfigurableEndpoints", "AnyVolumeDataSource", "AuthorizeNodeWithSelectors",
			"AuthorizeWithSelectors", "BtreeWatchCache", "CPUCFSQuotaPeriod", "ConsistentListFromCache", "GangScheduling",
			"JobBackoffLimitPerIndex", "JobPodReplacementPolicy", "JobSuccessPolicy", "LogarithmicScaleDown", "OrderedNamespaceDeletion",
			"PodLifecycleSleepAction", "PodLifecycleSleepActionAllowZero", "PreventStaticPodAPIReferences", "RelaxedDNSSearchValidation",
			"ResilientWatchCacheInitialization", "RetryGenerateName", "RuntimeClassInImageCriAPI", "SchedulerQueueingHints",
			"SidecarContainers", "StreamingCollectionEncodingToJSON", "StreamingCollectionEncodingToProtobuf",
			"StructuredAuthenticationConfiguration", "WorkloadAwarePreemption",
		},
		plugins: []string{"JobValidation", "PodGroupWorkloadExists"},
	},
}

// KnownUpTo is the newest minor version whose removals are known.
func KnownUpTo() uint { return removals[len(removals)-1].minor }

// removedIn is the first version on the way that doesn't know a setting; empty if all do.
func removedIn(setting Setting, from, to *version.Version) string {
	for _, removal := range removals {
		if removal.minor <= from.Minor() || removal.minor > to.Minor() {
			continue
		}
		var gone []string
		switch setting.Kind {
		case FeatureGate:
			gone = removal.gates
		case Flag:
			gone = removal.flags[setting.Component]
		case AdmissionPlugin:
			gone = removal.plugins
		}
		if slices.Contains(gone, setting.Name) {
			return fmt.Sprintf("1.%d", removal.minor)
		}
	}
	return ""
}

// Goes tells whether some version up to another one took a setting away: whether it is worth finding out where it stands.
func Goes(setting Setting, to string) bool {
	parsed, err := parse(to)
	return err == nil && removedIn(setting, version.MajorMinor(1, 0), parsed) != ""
}

// source is where people read of what a minor version took away.
func source(minor string) string { return "Kubernetes, CHANGELOG-" + minor + ".md" }
