// SPDX-License-Identifier: Apache-2.0

package talosclusters

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/registry/slots"
	"maesh.dev/ichor/registry/verbs"
)

// maxNamed is how many machines a refusal names.
const maxNamed = 10

// deleting wraps the validation of a deletion, which the store calls with the object that is deleted. The slots are in
// that object, so no approval of a control plane can slip in between; approvals of workers record the cluster's UID, by
// which the controller knows that theirs is gone.
func (r *REST) deleting(deleteValidation rest.ValidateObjectFunc, collection bool) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if deleteValidation != nil {
			if err := deleteValidation(ctx, obj); err != nil {
				return err
			}
		}
		cluster := obj.(*ichor.TalosCluster)
		if cluster.DeletionTimestamp != nil {
			return nil // decided before; asking again changes nothing
		}
		return r.checkDeletion(ctx, cluster, collection)
	}
}

func (r *REST) checkDeletion(ctx context.Context, cluster *ichor.TalosCluster, collection bool) error {
	machines, err := r.deps.Machines(ctx)
	if err != nil {
		return err
	}
	var members, locked []string
	for _, machine := range machines {
		if machine.Spec.ClusterRef.Name != cluster.Name {
			continue
		}
		members = append(members, machine.Name)
		if machine.Spec.Locked && machine.Spec.ApprovalState == ichor.ApprovalApproved {
			locked = append(locked, machine.Name)
		}
	}
	held := len(cluster.Status.ControlPlaneSlots) > 0
	switch {
	case !held && len(members) == 0:
		return nil
	case cluster.Spec.DeletionPolicy == ichor.ClusterDeletionRefuse && held:
		return refuse(cluster.Name, CauseClusterInUse, "status.controlPlaneSlots", fmt.Sprintf(
			"control planes belong to it: %s; remove them first, or set spec.deletionPolicy to Orphan (nothing is written to any machine) or Destroy (all are wiped)",
			strings.Join(slots.Holders(cluster), ", ")))
	case cluster.Spec.DeletionPolicy == ichor.ClusterDeletionRefuse:
		return refuse(cluster.Name, CauseClusterInUse, "metadata.name", fmt.Sprintf(
			"%d machines belong to it (%s); empty spec.discovery, then delete them first, or set spec.deletionPolicy to Orphan or Destroy", len(members), named(members)))
	case collection:
		return refuse(cluster.Name, CauseClusterInUse, "metadata.name", "a cluster with machines is deleted by its name")
	}
	if err := r.deps.Checker.Require(ctx, verbs.Remove, ""); err != nil {
		return err
	}
	if cluster.Spec.Locked {
		return refuse(cluster.Name, CauseLocked, "spec.locked", "the cluster is locked; set spec.locked to false first")
	}
	if len(locked) > 0 {
		return refuse(cluster.Name, CauseLocked, "spec.locked", "machines of it are locked: "+named(locked)+"; set their spec.locked to false first")
	}
	if holder := cluster.Status.ActiveOperation; holder != nil {
		return refuse(cluster.Name, CauseOperationRunning, "status.activeOperation", fmt.Sprintf("operation %s works on it; cancel it first, or wait for its end", holder.Name))
	}
	return nil
}

func named(machines []string) string {
	return strings.Join(machines[:min(len(machines), maxNamed)], ", ")
}
