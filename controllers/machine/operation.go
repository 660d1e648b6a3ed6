// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// operationForbids asks the API itself for the operation that holds a control plane's cluster. It is asked after what is about
// to be done was written down. An operation claims the cluster first and then looks for what was written down, so at least
// one of the two sees the other, and this one gives way: never two control planes are down by what Ichor does. It is asked where
// a configuration is about to be sent: an operation may be waiting for just that.
func (v *visit) operationForbids(ctx context.Context) (name string, err error) {
	holder, err := v.claimant(ctx)
	if err != nil || holder == nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	operation, err := v.Client.IchorV1alpha1().TalosOperations().Get(ctx, holder.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return holder.Name, nil // its claim is about to be taken back
	case err != nil:
		return "", fmt.Errorf("read operation %s, which holds cluster %s: %w", holder.Name, v.cluster.Name, err)
	case operation.UID == holder.UID && configures(operation, v.m.Name):
		return "", nil
	default:
		return holder.Name, nil
	}
}

// claimant is the operation that holds a control plane's cluster; nil if there is none, or the machine is none.
func (v *visit) claimant(ctx context.Context) (*v1alpha1.ActiveOperation, error) {
	if v.m.Spec.Role != v1alpha1.RoleControlPlane {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	cluster, err := v.Client.IchorV1alpha1().TalosClusters().Get(ctx, v.cluster.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read cluster %s: %w", v.cluster.Name, err)
	}
	return cluster.Status.ActiveOperation, nil
}

// configures tells whether an operation has a machine's configuration changed now. It is at such a step on one control plane
// at a time, and does nothing else meanwhile but wait for it.
func configures(operation *v1alpha1.TalosOperation, machine string) bool {
	return slices.ContainsFunc(operation.Status.Machines, func(record v1alpha1.OperationMachineStatus) bool {
		changes := slices.Contains([]string{
			v1alpha1.StepKubeAPIServer, v1alpha1.StepKubeControllerManager, v1alpha1.StepKubeScheduler, v1alpha1.StepKubelet,
		}, record.Step)
		return record.Name == machine && changes && (record.State == v1alpha1.StepIntended || record.State == v1alpha1.StepActed)
	})
}

// waitsForOperation says why a control plane is left as it is.
func waitsForOperation(name string) string {
	return fmt.Sprintf("operation %s works on the cluster, and control planes are left alone meanwhile; it goes on when that has ended, or was cancelled", name)
}
