// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

const (
	// maxQuarantined is how many machines a cluster's status remembers; none is forgotten for another.
	maxQuarantined = 64
	// maxReason is how many characters of a reason are kept.
	maxReason = 1024
)

// quarantine remembers in the cluster's status, before the machine's object goes, that the machine still holds the
// cluster's configuration. full says that there is no room, and that nothing was written.
func (v *visit) quarantine(ctx context.Context, why string) (full bool, err error) {
	clusters := v.Client.IchorV1alpha1().TalosClusters()
	for range maxConflicts {
		var cluster *v1alpha1.TalosCluster
		if cluster, err = clusters.Get(ctx, v.cluster.Name, metav1.GetOptions{}); err != nil {
			return false, fmt.Errorf("read cluster %s: %w", v.cluster.Name, err)
		}
		held := cluster.Status.Quarantined
		if slices.ContainsFunc(held, func(q v1alpha1.QuarantinedMachine) bool { return q.MachineUID == v.m.UID }) {
			return false, nil
		}
		if len(held) >= maxQuarantined {
			return true, nil
		}
		cluster.Status.Quarantined = append(held, v.quarantined(why))
		if _, err = clusters.UpdateStatus(ctx, cluster, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return false, fmt.Errorf("quarantine machine %s: %w", v.m.Name, err)
	}
	return false, nil
}

func (v *visit) quarantined(why string) v1alpha1.QuarantinedMachine {
	reason := []rune(talos.Steady(why))
	return v1alpha1.QuarantinedMachine{
		MachineUID: v.m.UID, Name: v.m.Name, Identity: v.m.Spec.Identity, Role: v.m.Spec.Role, NodeName: v.m.Status.NodeName,
		EtcdMemberID: v.removal().EtcdMemberID, By: v.m.Spec.Removal.By, At: *v.removal().GivenUpAt, Reason: string(reason[:min(len(reason), maxReason)]),
	}
}
