// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// orphans tells whether a cluster is being deleted and lets its machines go as they are.
func orphans(cluster *v1alpha1.TalosCluster) bool {
	return cluster.DeletionTimestamp != nil && cluster.Spec.DeletionPolicy == v1alpha1.ClusterDeletionOrphan
}

// endsWithMachines tells whether a cluster is being deleted with its machines: nothing is configured any more.
func endsWithMachines(cluster *v1alpha1.TalosCluster) bool {
	return cluster.DeletionTimestamp != nil && cluster.Spec.DeletionPolicy != v1alpha1.ClusterDeletionRefuse
}

// orphaned tells whether the machine is let go as it is because its cluster is.
func (v *visit) orphaned() bool {
	cluster, err := v.clusters.Get(v.m.Spec.ClusterRef.Name)
	return err == nil && isOf(v.m, cluster) && orphans(cluster)
}

// destroyed tells whether the machine's cluster is being destroyed. The cluster was found.
func (v *visit) destroyed() bool {
	return endsWithMachines(v.cluster) && v.cluster.Spec.DeletionPolicy == v1alpha1.ClusterDeletionDestroy
}

// isOf tells whether a cluster is the one that a machine was approved into, and not another of its name.
func isOf(m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster) bool {
	approval := m.Spec.Approval
	return approval == nil || approval.ClusterUID == "" || approval.ClusterUID == cluster.UID
}
