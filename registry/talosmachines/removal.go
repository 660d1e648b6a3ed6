// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/registry/verbs"
)

// Causes of a refused removal, for programs.
const (
	// CauseLocked says that spec.locked is set, of the machine or of its cluster.
	CauseLocked metav1.CauseType = "Locked"
	// CauseLastControlPlane says that the cluster would have no control plane left.
	CauseLastControlPlane metav1.CauseType = "LastControlPlane"
	// CauseApprovedInCollection says that approved machines are removed one by one.
	CauseApprovedInCollection metav1.CauseType = "ApprovedInCollection"
)

// removing wraps the validation of a deletion, which the store calls with the object that is deleted.
func (r *REST) removing(deleteValidation rest.ValidateObjectFunc, collection bool) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if deleteValidation != nil {
			if err := deleteValidation(ctx, obj); err != nil {
				return err
			}
		}
		return r.checkRemoval(ctx, obj.(*ichor.TalosMachine), collection)
	}
}

func (r *REST) checkRemoval(ctx context.Context, machine *ichor.TalosMachine, collection bool) error {
	if machine.DeletionTimestamp != nil {
		return nil // decided before; asking again changes nothing
	}
	if machine.Spec.Locked {
		return refuseRemoval(machine.Name, CauseLocked, "spec.locked", "the machine is locked; set spec.locked to false first")
	}
	if machine.Spec.ApprovalState != ichor.ApprovalApproved {
		return nil
	}
	if collection {
		return refuseRemoval(machine.Name, CauseApprovedInCollection, "spec.approvalState", "approved machines are removed one by one, by name")
	}
	cluster, err := r.clusterOf(ctx, machine)
	if err != nil {
		return err
	}
	if cluster != nil && cluster.Spec.Locked {
		return refuseRemoval(machine.Name, CauseLocked, "spec.clusterRef.name", fmt.Sprintf("cluster %s is locked; set its spec.locked to false first", cluster.Name))
	}
	if cluster != nil && goesWith(cluster) {
		return nil
	}
	if err := r.checker.Require(ctx, verbs.Remove, machine.Name); err != nil {
		return err
	}
	return r.checkLastControlPlane(ctx, machine)
}

// clusterOf is the machine's cluster, nil if there is none.
func (r *REST) clusterOf(ctx context.Context, machine *ichor.TalosMachine) (*ichor.TalosCluster, error) {
	cluster, err := r.reader.store.Cluster(ctx, machine.Spec.ClusterRef.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return cluster, err
}

// goesWith tells whether a cluster is being deleted with all its machines. Who deleted the cluster had the verb for each of
// them; the controller, which deletes them one after another, has not.
func goesWith(cluster *ichor.TalosCluster) bool {
	return cluster.DeletionTimestamp != nil && cluster.Spec.DeletionPolicy != ichor.ClusterDeletionRefuse
}

// checkAsked asks for the verb "remove" if how the machine is to be removed changes.
func (r *REST) checkAsked(ctx context.Context, machine *ichor.TalosMachine, was *ichor.MachineRemoval) error {
	if apiequality.Semantic.DeepEqual(machine.Spec.Removal, was) {
		return nil
	}
	return r.checker.Require(ctx, verbs.Remove, machine.Name)
}

// recordAsker writes who asked for how the machine is to be removed, and when; as it was if nothing else changed.
func recordAsker(ctx context.Context, removal, was *ichor.MachineRemoval) {
	if removal == nil {
		return
	}
	if was != nil {
		removal.By, removal.At = was.By, was.At
		if apiequality.Semantic.DeepEqual(removal, was) {
			return
		}
	}
	removal.By = ""
	if user, ok := request.UserFrom(ctx); ok {
		removal.By = user.GetName()
	}
	now := nowFunc()
	removal.At = &now
}

// checkLastControlPlane refuses to take the last control plane of the cluster that Ichor's own API lives in. Letting a
// cluster go (Orphan) leaves the machine as it is, so that is allowed.
func (r *REST) checkLastControlPlane(ctx context.Context, machine *ichor.TalosMachine) error {
	if machine.Spec.Role != ichor.RoleControlPlane || machine.Spec.DeletionPolicy == ichor.DeletionOrphan {
		return nil
	}
	machines, err := r.reader.list(ctx)
	if err != nil {
		return err
	}
	for _, other := range machines {
		if other.UID != machine.UID && other.DeletionTimestamp == nil && other.Spec.ApprovalState == ichor.ApprovalApproved &&
			other.Spec.Role == ichor.RoleControlPlane && other.Spec.ClusterRef.Name == machine.Spec.ClusterRef.Name {
			return nil
		}
	}
	return refuseRemoval(machine.Name, CauseLastControlPlane, "spec.role", fmt.Sprintf(
		"it is the last control plane of cluster %q, which holds Ichor itself; approve another one first, or set spec.deletionPolicy to Orphan to let the machine go as it is",
		machine.Spec.ClusterRef.Name))
}

// refuseCollection refuses a whole collection, before anything of it is deleted, if it has approved machines.
func (r *REST) refuseCollection(ctx context.Context, options *metainternalversion.ListOptions) error {
	obj, err := r.List(ctx, options)
	if err != nil {
		return err
	}
	var approved []string
	for _, machine := range obj.(*ichor.TalosMachineList).Items {
		if machine.Spec.ApprovalState == ichor.ApprovalApproved && machine.DeletionTimestamp == nil {
			approved = append(approved, machine.Name)
		}
	}
	if len(approved) == 0 {
		return nil
	}
	shown := approved[:min(len(approved), 10)]
	return refuseRemoval("", CauseApprovedInCollection, "spec.approvalState", fmt.Sprintf(
		"approved machines are removed one by one, by name; the collection has %d: %s", len(approved), strings.Join(shown, ", ")))
}

func refuseRemoval(name string, cause metav1.CauseType, field, message string) error {
	status := apierrors.NewForbidden(ichor.Resource("talosmachines"), name, errors.New(message))
	status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause, Message: message, Field: field})
	return status
}
