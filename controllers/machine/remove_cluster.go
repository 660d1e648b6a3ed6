// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"

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

// stepEnding looks at a machine of a cluster that is being deleted with its machines, and sends it nothing. How it is is told as
// ever: a control plane leaves etcd only while those that wait for their turn are Ready, so one that wasn't said to be would
// keep all of them.
func (v *visit) stepEnding(ctx context.Context) error {
	const why = "the cluster is being deleted: nothing is sent to the machine, and it goes with the cluster"
	if !ran(v.m) {
		v.block(reasonClusterDeleted, why, pollSlow)
		return nil
	}
	setFalse(v.m, v1alpha1.ConditionConfigApplied, reasonClusterDeleted, why)
	found, err := v.look(ctx)
	if err != nil {
		return v.secretsFailed(err)
	}
	defer found.close()
	v.note(found)
	if found.kind != sawConfigured {
		setFalse(v.m, v1alpha1.ConditionReady, reasonClusterDeleted, why+"; it doesn't run as it did: "+found.message)
		v.after = pollSlow
		return nil
	}
	v.describe(found.facts)
	v.checkInstalled(found.facts)
	if err := v.checkJoined(ctx, found); err != nil {
		return err
	}
	return v.checkReady(found.facts)
}
