// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/controllers/operation/gates"
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
	if cluster.DeletionTimestamp != nil {
		return "", fmt.Errorf("cluster %s is being deleted, so nothing is begun; cancel operation %s", cluster.Name, r.op.Name)
	}
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
func (c *Controller) isGone(ctx context.Context, holder *v1alpha1.ActiveOperation) (bool, error) {
	operation, err := c.Client.IchorV1alpha1().TalosOperations().Get(ctx, holder.Name, metav1.GetOptions{})
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
	return firstOf(all, r.op.Spec.ClusterRef.Name, r.Clock.Now()), nil
}

// firstOf is the oldest operation of a cluster that wants to work now. One that waits for its window lets others pass.
func firstOf(all []*v1alpha1.TalosOperation, cluster string, now time.Time) *v1alpha1.TalosOperation {
	var first *v1alpha1.TalosOperation
	for _, operation := range all {
		if isOver(operation) || operation.Spec.ClusterRef.Name != cluster || operation.Spec.Mode == v1alpha1.OperationModePlan ||
			operation.Spec.Suspend && operation.Status.Current == "" || operation.DeletionTimestamp != nil {
			continue
		}
		if open, _, err := gates.Open(operation.Spec.Windows, now); operation.Status.Current == "" && (err != nil || !open) {
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

// release takes back what is held for an operation that has ended or is gone: Nodes that it cordoned are uncordoned, then
// the cluster is given back. The caches only tell where to look; a claim that they don't show yet brings another look.
func (c *Controller) release(ctx context.Context, name string) error {
	all, err := c.clusters.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list clusters: %w", err)
	}
	var errs []error
	for _, cached := range all {
		if holder := cached.Status.ActiveOperation; holder != nil && holder.Name == name {
			errs = append(errs, c.releaseCluster(ctx, cached.Name, name))
		}
	}
	return errors.Join(errs...)
}

func (c *Controller) releaseCluster(ctx context.Context, clusterName, name string) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	return c.giveBack(ctx, clusterName, func(holder *v1alpha1.ActiveOperation) (bool, error) {
		if holder.Name != name {
			return false, nil
		}
		gone, err := c.isGone(ctx, holder)
		if err != nil || !gone {
			return false, err
		}
		return true, c.uncordonAll(ctx, holder.UID)
	})
}

// giveBack takes the claim off a cluster, if may says so of whoever holds it by the API itself.
func (c *Controller) giveBack(ctx context.Context, clusterName string, may func(*v1alpha1.ActiveOperation) (bool, error)) error {
	clusters := c.Client.IchorV1alpha1().TalosClusters()
	cluster, err := clusters.Get(ctx, clusterName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read cluster %s: %w", clusterName, err)
	}
	if cluster.Status.ActiveOperation == nil {
		return nil
	}
	if ok, err := may(cluster.Status.ActiveOperation); err != nil || !ok {
		return err
	}
	cluster.Status.ActiveOperation = nil
	if _, err := clusters.UpdateStatus(ctx, cluster, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("give cluster %s back: %w", cluster.Name, err)
	}
	return nil
}

// uncordonAll uncordons the Nodes that carry an operation's mark: of machines that are gone meanwhile, or that were cordoned
// by a process that didn't live to say so.
func (c *Controller) uncordonAll(ctx context.Context, operation types.UID) error {
	nodes, err := c.Nodes.Nodes().List(ctx, metav1.ListOptions{}) // not from a cache: a mark that it doesn't show yet would stay for good
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	var errs []error
	for i := range nodes.Items {
		if node := &nodes.Items[i]; node.Annotations[v1alpha1.CordonedByAnnotation] == string(operation) {
			errs = append(errs, c.Drainer.Uncordon(ctx, node.Name, operation))
		}
	}
	return errors.Join(errs...)
}

// releaseTimeout bounds the taking back of what an operation holds.
const releaseTimeout = time.Minute
