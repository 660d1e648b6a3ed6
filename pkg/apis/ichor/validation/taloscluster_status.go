// SPDX-License-Identifier: Apache-2.0

package validation

import (
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// MaxDiscoveredHosts bounds the list of odd hosts in a cluster's status; the counts go on beyond it.
const MaxDiscoveredHosts = 256

const (
	maxEtcdMembers = 64
	maxMessage     = 32 << 10
)

// ValidateTalosClusterStatusUpdate judges a status.
func ValidateTalosClusterStatusUpdate(cluster, _ *ichor.TalosCluster) field.ErrorList {
	path, status := field.NewPath("status"), &cluster.Status
	errs := metav1validation.ValidateConditions(status.Conditions, path.Child("conditions"))
	discovery := &status.Discovery
	if discovery.Phase != "" {
		errs = append(errs, oneOf(discovery.Phase, path.Child("discovery", "phase"), ichor.DiscoveryIdle, ichor.DiscoveryScanning)...)
	}
	hosts := path.Child("discovery", "hosts")
	if len(discovery.Hosts) > MaxDiscoveredHosts {
		errs = append(errs, field.TooMany(hosts, len(discovery.Hosts), MaxDiscoveredHosts))
	}
	for i, host := range discovery.Hosts {
		_, bad := ipAddress(host.Address, hosts.Index(i).Child("address"))
		errs = append(errs, bad...)
		errs = append(errs, oneOf(host.Class, hosts.Index(i).Child("class"), ichor.HostMaintenance, ichor.HostAlreadyConfigured,
			ichor.HostOursUnknown, ichor.HostQuarantined, ichor.HostNotTalos, ichor.HostUnreachable)...)
		errs = append(errs, tooLong(host.Message, maxMessage, hosts.Index(i).Child("message"))...)
	}
	if len(status.Quarantined) > MaxQuarantined {
		errs = append(errs, field.TooMany(path.Child("quarantined"), len(status.Quarantined), MaxQuarantined))
	}
	if len(status.EtcdMembers) > maxEtcdMembers {
		errs = append(errs, field.TooMany(path.Child("etcdMembers"), len(status.EtcdMembers), maxEtcdMembers))
	}
	return errs
}

// ValidateTalosClusterFinalizeUpdate judges a change of the finalizers: Ichor's own goes only from a cluster that is
// being deleted and that no control plane holds a slot of.
func ValidateTalosClusterFinalizeUpdate(cluster, was *ichor.TalosCluster) field.ErrorList {
	path := field.NewPath("metadata", "finalizers")
	errs := finalizerKept(v1alpha1.ClusterFinalizer, cluster.Finalizers, was.Finalizers, was.DeletionTimestamp != nil, path)
	if held := len(was.Status.ControlPlaneSlots); held > 0 && len(cluster.Finalizers) == 0 {
		errs = append(errs, field.Forbidden(path, "control planes hold slots of the cluster; they are removed first"))
	}
	return errs
}
