// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	leaseNamespace = "kube-node-lease"
	// leaseSeconds is a kubelet's default length of a Lease (nodeLeaseDurationSeconds).
	leaseSeconds int32 = 40
	// leaseFraction is after which part of its length a kubelet renews its Lease.
	// Source: Kubernetes, pkg/kubelet/kubelet.go, nodeLeaseRenewIntervalFraction.
	leaseFraction = 4
)

// leaseHolder renews the node's Lease; it remembers the last version to spare a read.
type leaseHolder struct {
	// seconds is the Lease's length.
	seconds int32
	last    *coordinationv1.Lease
	// owner is the Node, so that the Lease goes with it.
	owner types.UID
}

func (h *leaseHolder) renew(ctx context.Context, client kubernetes.Interface, nodeName string) error {
	leases := client.CoordinationV1().Leases(leaseNamespace)
	now := metav1.NewMicroTime(time.Now())

	if h.last == nil {
		found, err := leases.Get(ctx, nodeName, metav1.GetOptions{})

		switch {
		case apierrors.IsNotFound(err):
			h.last, err = leases.Create(ctx, h.fresh(nodeName, now), metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("create lease of node %s: %w", nodeName, err)
			}

			return nil
		case err != nil:
			return fmt.Errorf("get lease of node %s: %w", nodeName, err)
		}

		h.last = found
	}

	lease := h.last.DeepCopy()
	lease.Spec = h.fresh(nodeName, now).Spec

	renewed, err := leases.Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		// Whatever happened, the next attempt reads the Lease first.
		h.last = nil

		return fmt.Errorf("renew lease of node %s: %w", nodeName, err)
	}

	h.last = renewed

	return nil
}

func (h *leaseHolder) fresh(nodeName string, now metav1.MicroTime) *coordinationv1.Lease {
	seconds := h.seconds
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Namespace: leaseNamespace},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &nodeName, LeaseDurationSeconds: &seconds, RenewTime: &now,
		},
	}

	if h.owner != "" {
		lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: h.owner}}
	}

	return lease
}
