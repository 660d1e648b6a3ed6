// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// TrimManagedFields is a cache's transform that forgets who manages which field: an API server that is sent an object
// without it keeps what it has.
func TrimManagedFields(object any) (any, error) {
	if _, gone := object.(cache.DeletedFinalStateUnknown); gone {
		return object, nil
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, fmt.Errorf("forget managed fields of a %T: %w", object, err)
	}
	accessor.SetManagedFields(nil)
	return object, nil
}

// TrimNode is a cache's transform that keeps of a Node only what this package reads: the images that a Node lists, and who
// manages which of its fields, take most of the memory.
func TrimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, CreationTimestamp: node.CreationTimestamp,
			DeletionTimestamp: node.DeletionTimestamp, Labels: node.Labels,
		},
		Status: corev1.NodeStatus{Addresses: node.Status.Addresses, Conditions: node.Status.Conditions},
	}, nil
}
