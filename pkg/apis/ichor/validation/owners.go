// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// NamespacedKinds are the kinds of Kubernetes' own API groups that belong to namespaces.
// Source: Kubernetes 1.37, the strategies in pkg/registry.
var NamespacedKinds = map[string][]string{
	"": {
		"ConfigMap", "Endpoints", "Event", "LimitRange", "PersistentVolumeClaim", "Pod", "PodTemplate", "ReplicationController",
		"ResourceQuota", "Secret", "Service", "ServiceAccount",
	},
	"apps":                      {"ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"},
	"autoscaling":               {"HorizontalPodAutoscaler"},
	"batch":                     {"CronJob", "Job"},
	"coordination.k8s.io":       {"Lease", "LeaseCandidate"},
	"discovery.k8s.io":          {"EndpointSlice"},
	"events.k8s.io":             {"Event"},
	"networking.k8s.io":         {"Ingress", "NetworkPolicy"},
	"policy":                    {"PodDisruptionBudget"},
	"rbac.authorization.k8s.io": {"Role", "RoleBinding"},
	"resource.k8s.io":           {"ResourceClaim", "ResourceClaimTemplate"},
	"scheduling.k8s.io":         {"PodGroup", "Workload"},
	"storage.k8s.io":            {"CSIStorageCapacity"},
}

// OwnKinds are the kinds of Ichor's own group. None belongs to a namespace.
var OwnKinds = []string{
	"IchorInstallation", "IchorUser", "MachineReclaim", "TalosCluster", "TalosConfigPatch", "TalosCredentialRequest", "TalosEtcdBackup",
	"TalosMachine", "TalosOperation", "TalosStorage",
}

// ValidateOwners refuses owners that belong to a namespace. Objects of Ichor belong to none, and the garbage collector
// never collects such an object whose owner belongs to one: it couldn't tell which of many it is.
//
// What is namespaced is known of Kubernetes' own kinds, and of Ichor's; the scope of any other kind is known to its own
// API server alone, which a rule of storage must not depend on. Owners of other groups are taken as they are, and so are
// those that the object had before.
func ValidateOwners(owners, were []metav1.OwnerReference) field.ErrorList {
	var errs field.ErrorList
	for i, owner := range owners {
		if slices.ContainsFunc(were, func(was metav1.OwnerReference) bool { return apiequality.Semantic.DeepEqual(was, owner) }) {
			continue
		}
		path := field.NewPath("metadata", "ownerReferences").Index(i)
		group, _, found := strings.Cut(owner.APIVersion, "/")
		if !found {
			group = "" // "v1" is the version of the core group
		}
		switch {
		case slices.Contains(NamespacedKinds[group], owner.Kind):
			errs = append(errs, field.Invalid(path, owner.Kind+" "+owner.Name, fmt.Sprintf(
				"a %s belongs to a namespace, and this object to none: it would never be collected; name an owner without namespace, such as a TalosCluster or a Node", owner.Kind)))
		case group == ichor.GroupName && !slices.Contains(OwnKinds, owner.Kind):
			errs = append(errs, field.NotSupported(path.Child("kind"), owner.Kind, OwnKinds))
		}
	}
	return errs
}
