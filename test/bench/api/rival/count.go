// SPDX-License-Identifier: Apache-2.0

package rival

import (
	"context"
	"fmt"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Count tells how many control planes a cluster has, by what the webhook sees.
type Count func(ctx context.Context, cluster string) (int, error)

// CountGate lets a control plane through while there are fewer than the limit. Between its look and the write of the
// machine any number of others look: that is the race.
type CountGate struct {
	Clusters Clusters
	Count    Count
}

// Admit counts.
func (g CountGate) Admit(ctx context.Context, machine *v1alpha1.TalosMachine, _ bool) error {
	if machine.Spec.Role != v1alpha1.RoleControlPlane {
		return nil
	}
	cluster, err := g.Clusters.Get(ctx, machine.Spec.ClusterRef.Name)
	if err != nil {
		return fmt.Errorf("read cluster %s: %w", machine.Spec.ClusterRef.Name, err)
	}
	n, err := g.Count(ctx, cluster.Name)
	if err != nil {
		return fmt.Errorf("count control planes of cluster %s: %w", cluster.Name, err)
	}
	if limit := int(cluster.Spec.ControlPlane.Count) + 1; n >= limit {
		return fmt.Errorf("cluster %s has %d control planes of at most %d", cluster.Name, n, limit)
	}
	return nil
}
