// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// keptOperations is how many operations of a cluster that have ended are kept.
const keptOperations = 100

// prune deletes the oldest operations of a cluster that have ended, and only the very objects that were judged.
func (r *run) prune(ctx context.Context) error {
	all, err := r.operations.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list operations: %w", err)
	}
	var errs []error
	for _, old := range beyond(all, r.op.Spec.ClusterRef.Name, keptOperations) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		err := r.Client.IchorV1alpha1().TalosOperations().Delete(ctx, old.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &old.UID}})
		cancel()
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("delete operation %s, which ended long ago: %w", old.Name, err))
		}
	}
	return errors.Join(errs...)
}

// beyond are the operations of a cluster that have ended, without the newest ones.
func beyond(all []*v1alpha1.TalosOperation, cluster string, keep int) []*v1alpha1.TalosOperation {
	var ended []*v1alpha1.TalosOperation
	for _, operation := range all {
		if isOver(operation) && operation.Spec.ClusterRef.Name == cluster && operation.DeletionTimestamp == nil {
			ended = append(ended, operation)
		}
	}
	slices.SortFunc(ended, func(a, b *v1alpha1.TalosOperation) int {
		if older(a, b) {
			return -1
		}
		return 1
	})
	return ended[:max(len(ended)-keep, 0)]
}
