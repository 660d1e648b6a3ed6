// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// operationOn names the operation that may take a control plane of the cluster down; empty if there is none.
func operationOn(cluster *v1alpha1.TalosCluster) string {
	if holder := cluster.Status.ActiveOperation; holder != nil {
		return holder.Name
	}
	return ""
}

// operationClaims asks the API itself for the operation that holds a control plane's cluster. It is asked after what is
// about to be done to the control plane was written down. An operation claims the cluster first and then looks for what
// was written down, so at least one of the two sees the other, and this one gives way: never two control planes are down
// by what Ichor does.
func (v *visit) operationClaims(ctx context.Context) (name string, err error) {
	if v.m.Spec.Role != v1alpha1.RoleControlPlane {
		return "", nil
	}
	cluster, err := v.Client.IchorV1alpha1().TalosClusters().Get(ctx, v.cluster.Name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read cluster %s: %w", v.cluster.Name, err)
	}
	return operationOn(cluster), nil
}

// waitsForOperation says why a control plane is left as it is.
func waitsForOperation(name string) string {
	return fmt.Sprintf("operation %s works on the cluster, and control planes are left alone meanwhile; it goes on when that has ended, or was cancelled", name)
}
