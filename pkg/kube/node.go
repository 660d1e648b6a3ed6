// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// Nodes finds the Nodes of one cluster in a cache.
type Nodes struct {
	Lister corev1listers.NodeLister
	// Client deletes Nodes; nil where none are deleted.
	Client corev1client.NodesGetter
}

// ForMachine finds a machine's Node: the one with the given name, else the one that has one of the machine's addresses.
// It is nil if there is none.
func (n Nodes) ForMachine(name string, addresses []string) (*corev1.Node, error) {
	if name != "" {
		node, err := n.Lister.Get(name)
		if err == nil {
			return node, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read Node %s: %w", name, err)
		}
		return nil, nil
	}
	nodes, err := n.Lister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	for _, node := range nodes {
		if HasAddress(node, addresses) {
			return node, nil
		}
	}
	return nil, nil
}

// SameMachine tells whether two versions of a Node say the same of its machine: who and where it is, and whether it is
// ready.
func SameMachine(a, b *corev1.Node) bool {
	aReady, aWhy := NodeReady(a)
	bReady, bWhy := NodeReady(b)
	return a.UID == b.UID && a.DeletionTimestamp.Equal(b.DeletionTimestamp) && aReady == bReady && aWhy == bWhy &&
		slices.Equal(a.Status.Addresses, b.Status.Addresses)
}

// Delete removes a Node, but only the very one that was looked at. A Node that is gone is no error.
func (n Nodes) Delete(ctx context.Context, node *corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := n.Client.Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Node %s: %w", node.Name, err)
	}
	return nil
}

// HasAddress tells whether a Node has one of the IP addresses.
func HasAddress(node *corev1.Node, addresses []string) bool {
	return slices.ContainsFunc(node.Status.Addresses, func(address corev1.NodeAddress) bool {
		return slices.Contains(addresses, address.Address)
	})
}

// NodeReady tells whether a Node's kubelet says that it is ready, and why not.
func NodeReady(node *corev1.Node) (bool, string) {
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		if condition.Status == corev1.ConditionTrue {
			return true, ""
		}
		return false, fmt.Sprintf("Node %s is not ready: %s", node.Name, condition.Message)
	}
	return false, fmt.Sprintf("Node %s has not said yet whether it is ready", node.Name)
}
