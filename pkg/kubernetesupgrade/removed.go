// SPDX-License-Identifier: Apache-2.0

package kubernetesupgrade

import (
	"fmt"
	"slices"
	"strings"

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

// API is a version of a kind of object.
type API struct{ Group, Version, Resource string }

func (a API) String() string { return fmt.Sprintf("%s.%s.%s", a.Resource, a.Version, a.Group) }

// removedAPIs by the minor version that doesn't serve them any more. Source: k8s.io/api v0.37.2, APILifecycleRemoved of
// every zz_generated.prerelease-lifecycle.go; podschedulingcontexts: Kubernetes, CHANGELOG-1.32.md.
var removedAPIs = map[uint][]API{
	32: {
		{"admissionregistration.k8s.io", "v1alpha1", "validatingadmissionpolicies"},
		{"admissionregistration.k8s.io", "v1alpha1", "validatingadmissionpolicybindings"},
		{"flowcontrol.apiserver.k8s.io", "v1beta3", "flowschemas"},
		{"flowcontrol.apiserver.k8s.io", "v1beta3", "prioritylevelconfigurations"},
		{"resource.k8s.io", "v1alpha3", "podschedulingcontexts"},
	},
	34: {
		{"admissionregistration.k8s.io", "v1beta1", "validatingadmissionpolicies"},
		{"admissionregistration.k8s.io", "v1beta1", "validatingadmissionpolicybindings"},
	},
	35: {{"storage.k8s.io", "v1alpha1", "volumeattributesclasses"}},
	37: {
		{"certificates.k8s.io", "v1alpha1", "clustertrustbundles"},
		{"networking.k8s.io", "v1beta1", "ipaddresses"},
		{"networking.k8s.io", "v1beta1", "servicecidrs"},
		{"storage.k8s.io", "v1beta1", "volumeattributesclasses"},
	},
}

// RequestedAPIs tells which kinds of objects that somebody asked kube-apiserver for are gone after an upgrade. It only warns: who
// asks may do so no more, or ask for a newer version as well.
func RequestedAPIs(requested []API, from, to string) []Finding {
	was, err := parse(from)
	if err != nil {
		return nil
	}
	is, err := parse(to)
	if err != nil {
		return nil
	}
	var gone []string
	for minor, apis := range removedAPIs {
		if minor <= was.Minor() || minor > is.Minor() {
			continue
		}
		for _, api := range apis {
			if slices.Contains(requested, api) {
				gone = append(gone, fmt.Sprintf("%s (gone in 1.%d)", api, minor))
			}
		}
	}
	if len(gone) == 0 {
		return nil
	}
	slices.Sort(gone)
	return []Finding{{Check: CheckAPIs, Message: fmt.Sprintf(
		"somebody asked kube-apiserver for what won't be served: %s; see who by the audit log (annotation k8s.io/removed-release), and have it ask for a newer version first", strings.Join(gone, ", "))}}
}
