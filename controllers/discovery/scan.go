// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Reasons of the condition Discovered.
const (
	reasonScanned       = "Scanned"
	reasonScanning      = "Scanning"
	reasonNothingToScan = "NothingToScan"
	reasonFaultySpec    = "FaultySpec"
)

// errPlanChanged ends a scan whose subnets or addresses are no longer those of the spec.
var errPlanChanged = errors.New("spec.discovery has changed")

// scan looks at every address of a cluster's discovery, and writes down what it found.
func (c *Controller) scan(ctx context.Context, cluster *v1alpha1.TalosCluster) (*results, error) {
	p := newPlan(cluster.Spec.Discovery)
	r := newResults(p, resumable(cluster))
	if err := c.run(ctx, cluster, r, func() error { return c.writeProgress(ctx, cluster, r) }); err != nil {
		return r, err
	}
	if len(p.addresses) > 0 {
		if err := c.noteMissing(ctx, cluster, r); err != nil {
			return r, err
		}
	}
	return r, c.store.updateCluster(ctx, cluster, func(cluster *v1alpha1.TalosCluster) {
		r.finish(&cluster.Status.Discovery)
	}, scanned(cluster, p))
}

// scanned writes that a scan of this spec was finished.
func scanned(started *v1alpha1.TalosCluster, p plan) func(*v1alpha1.TalosCluster) {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionDiscovered, Status: metav1.ConditionTrue, Reason: reasonScanned,
		Message: "the last scan looked at every address of spec.discovery", ObservedGeneration: started.Generation,
	}
	switch {
	case len(p.faults) > 0:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reasonFaultySpec, strings.Join(p.faults[:min(len(p.faults), 8)], "; ")
	case len(p.addresses) == 0:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reasonNothingToScan,
			"spec.discovery names no subnet and no address; add one with: ichor cluster discovery add"
	}
	return func(cluster *v1alpha1.TalosCluster) {
		cluster.Status.Discovery.ScanRequest = started.Spec.Discovery.ScanRequest
		cluster.Status.Discovery.ObservedGeneration = started.Generation
		meta.SetStatusCondition(&cluster.Status.Conditions, condition)
	}
}

// resumable is the status of a scan of this very spec that was cut off. Which spec it was of is told by the condition.
func resumable(cluster *v1alpha1.TalosCluster) *v1alpha1.DiscoveryStatus {
	condition := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionDiscovered)
	status := &cluster.Status.Discovery
	if status.Phase != v1alpha1.DiscoveryScanning || condition == nil || condition.ObservedGeneration != cluster.Generation {
		return nil
	}
	return status.DeepCopy()
}

// writeProgress shows a scan that takes its time.
func (c *Controller) writeProgress(ctx context.Context, cluster *v1alpha1.TalosCluster, r *results) error {
	return c.store.updateCluster(ctx, cluster, func(now *v1alpha1.TalosCluster) {
		r.progress(&now.Status.Discovery)
		condition := metav1.Condition{
			Type: v1alpha1.ConditionDiscovered, Status: metav1.ConditionUnknown, Reason: reasonScanning, Message: "the first scan runs",
		}
		if before := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionDiscovered); before != nil {
			condition = *before
		}
		condition.ObservedGeneration = cluster.Generation
		meta.SetStatusCondition(&now.Status.Conditions, condition)
	})
}

// noteMissing moves the condition Reachable of machines that wait for a person and were not found.
func (c *Controller) noteMissing(ctx context.Context, cluster *v1alpha1.TalosCluster, r *results) error {
	machines, err := c.store.all()
	if err != nil {
		return err
	}
	concerned := func(m *v1alpha1.TalosMachine) bool {
		return waits(m) && m.Spec.ClusterRef.Name == cluster.Name && r.missing(m)
	}
	for _, m := range machines {
		if !concerned(m) {
			continue
		}
		_, err := c.store.update(ctx, m, func(m *v1alpha1.TalosMachine) {
			if concerned(m) {
				missed(m)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
