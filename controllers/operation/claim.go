// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// claim asks for the cluster, and says what holds it otherwise. Operations get it in the order of their creation; one that
// is suspended before it began lets others pass. The claim is a field of the cluster, written on the version that was read,
// so that two operations never hold it, whichever processes ask.
func (r *run) claim(ctx context.Context) (heldBy string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	clusters := r.Client.IchorV1alpha1().TalosClusters()
	cluster, err := clusters.Get(ctx, r.cluster.Name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read cluster %s: %w", r.cluster.Name, err)
	}
	r.cluster = cluster
	if holder := cluster.Status.ActiveOperation; holder != nil {
		if holder.UID == r.op.UID {
			return "", nil
		}
		gone, err := r.isGone(ctx, holder)
		if err != nil {
			return "", err
		}
		if !gone {
			return holder.Name, nil
		}
	}
	first, err := r.first()
	if err != nil {
		return "", err
	}
	if first != nil && first.UID != r.op.UID {
		return first.Name, nil
	}
	claimed := cluster.DeepCopy()
	claimed.Status.ActiveOperation = &v1alpha1.ActiveOperation{Name: r.op.Name, UID: r.op.UID, Since: r.now}
	if r.cluster, err = clusters.UpdateStatus(ctx, claimed, metav1.UpdateOptions{}); err != nil {
		return "", fmt.Errorf("claim cluster %s for operation %s: %w", cluster.Name, r.op.Name, err)
	}
	return "", nil
}

// isGone tells whether the operation that a claim is for has ended, or was deleted. The API itself is asked.
func (r *run) isGone(ctx context.Context, holder *v1alpha1.ActiveOperation) (bool, error) {
	operation, err := r.Client.IchorV1alpha1().TalosOperations().Get(ctx, holder.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read operation %s, which holds the cluster: %w", holder.Name, err)
	default:
		return operation.UID != holder.UID || isOver(operation), nil
	}
}

// first is the operation whose turn it is in the cluster.
func (r *run) first() (*v1alpha1.TalosOperation, error) {
	all, err := r.operations.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list operations: %w", err)
	}
	return firstOf(all, r.op.Spec.ClusterRef.Name), nil
}

// firstOf is the oldest operation of a cluster that wants to work.
func firstOf(all []*v1alpha1.TalosOperation, cluster string) *v1alpha1.TalosOperation {
	var first *v1alpha1.TalosOperation
	for _, operation := range all {
		if isOver(operation) || operation.Spec.ClusterRef.Name != cluster || operation.Spec.Mode == v1alpha1.OperationModePlan ||
			operation.Spec.Suspend && operation.Status.StartedAt == nil || operation.DeletionTimestamp != nil {
			continue
		}
		if first == nil || older(operation, first) {
			first = operation
		}
	}
	return first
}

func older(a, b *v1alpha1.TalosOperation) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// release gives the cluster back, if the operation holds it.
func (r *run) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	clusters := r.Client.IchorV1alpha1().TalosClusters()
	cached, err := r.clusters.Get(r.op.Spec.ClusterRef.Name)
	if apierrors.IsNotFound(err) || err == nil && (cached.Status.ActiveOperation == nil || cached.Status.ActiveOperation.UID != r.op.UID) {
		return nil // if the cache is late, whoever claims the cluster next finds that this one has ended
	}
	if err != nil {
		return fmt.Errorf("read cluster %s: %w", r.op.Spec.ClusterRef.Name, err)
	}
	cluster, err := clusters.Get(ctx, cached.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read cluster %s: %w", cached.Name, err)
	}
	if holder := cluster.Status.ActiveOperation; holder == nil || holder.UID != r.op.UID {
		return nil
	}
	cluster.Status.ActiveOperation = nil
	if _, err := clusters.UpdateStatus(ctx, cluster, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("give cluster %s back: %w", cluster.Name, err)
	}
	return nil
}
