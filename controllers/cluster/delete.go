// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Reasons of the condition Deleting.
const (
	reasonLettingGo       = "LettingGo"
	reasonWorkersGo       = "WorkersGo"
	reasonControlPlanesGo = "ControlPlanesGo"
	reasonLastGoes        = "LastControlPlaneGoes"
)

// maxWaits is how many machines a message names.
const maxWaits = 5

// end goes on with a cluster that is being deleted with its machines: it deletes their objects, in the order of the
// policy, and what becomes of each machine is its own controller's. Which machines are left is asked of the API itself,
// and the cluster ends when there are none.
func (c *Controller) end(ctx context.Context, cached *v1alpha1.TalosCluster) (time.Duration, error) {
	cluster := cached.DeepCopy()
	if !slices.Contains(cluster.Finalizers, v1alpha1.ClusterFinalizer) {
		return 0, nil
	}
	// Nothing but the word itself destroys.
	if policy := cluster.Spec.DeletionPolicy; policy != v1alpha1.ClusterDeletionOrphan && policy != v1alpha1.ClusterDeletionDestroy {
		return pollSettled, c.letGo(ctx, cluster)
	}
	members, err := c.members(ctx, cluster.Name)
	if err != nil {
		return 0, err
	}
	cluster.Status.ObservedGeneration = cluster.Generation
	count(cluster, members)
	next, reason, message := following(cluster.Spec.DeletionPolicy, members)
	set(cluster, v1alpha1.ConditionDeleting, metav1.ConditionTrue, reason, message)
	// What is about to happen is written down first: with the last control plane, this API may go.
	if err := c.save(ctx, cached, cluster); err != nil {
		return 0, err
	}
	if len(members) == 0 {
		newest, err := c.Client.IchorV1alpha1().TalosClusters().Get(ctx, cluster.Name, metav1.GetOptions{})
		if err != nil {
			return 0, fmt.Errorf("read cluster %s: %w", cluster.Name, err)
		}
		return pollMoving, c.letGo(ctx, newest)
	}
	var errs []error
	for _, m := range next {
		options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &m.UID}}
		if err := c.Client.IchorV1alpha1().TalosMachines().Delete(ctx, m.Name, options); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("delete machine %s of cluster %s: %w", m.Name, cluster.Name, err))
		}
	}
	return pollMoving, errors.Join(errs...)
}

// members asks the API itself for all machines of a cluster, by name.
func (c *Controller) members(ctx context.Context, cluster string) ([]*v1alpha1.TalosMachine, error) {
	list, err := c.Client.IchorV1alpha1().TalosMachines().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the machines of cluster %s: %w", cluster, err)
	}
	var members []*v1alpha1.TalosMachine
	for i := range list.Items {
		if list.Items[i].Spec.ClusterRef.Name == cluster {
			members = append(members, &list.Items[i])
		}
	}
	slices.SortFunc(members, func(a, b *v1alpha1.TalosMachine) int { return strings.Compare(a.Name, b.Name) })
	return members, nil
}

// following says which machines' objects are deleted next, and where the cluster is with that. All go at once where
// nothing is written to them; else what nobody approved and the workers, and after them the control planes one by one:
// those that aren't Ready first, which the others' etcd needs, and of the others the one that was approved last.
func following(policy v1alpha1.ClusterDeletionPolicy, members []*v1alpha1.TalosMachine) (next []*v1alpha1.TalosMachine, reason, message string) {
	var controlPlanes, others []*v1alpha1.TalosMachine
	for _, m := range members {
		if m.Spec.ApprovalState == v1alpha1.ApprovalApproved && m.Spec.Role == v1alpha1.RoleControlPlane {
			controlPlanes = append(controlPlanes, m)
		} else {
			others = append(others, m)
		}
	}
	switch {
	case policy == v1alpha1.ClusterDeletionOrphan:
		return staying(members), reasonLettingGo, fmt.Sprintf("the objects of %d machines go, and nothing is written to any machine%s", len(members), waits(members))
	case len(others) > 0:
		return staying(others), reasonWorkersGo, fmt.Sprintf("%d workers are wiped, and then %d control planes%s", len(others), len(controlPlanes), waits(others))
	case len(controlPlanes) == 0:
		return nil, reasonControlPlanesGo, "no machine is left"
	}
	slices.SortStableFunc(controlPlanes, func(a, b *v1alpha1.TalosMachine) int {
		return cmp.Or(boolean(isReady(a))-boolean(isReady(b)), approvedAt(b).Compare(approvedAt(a)))
	})
	left := staying(controlPlanes)
	if len(left) == len(controlPlanes) {
		left = left[:1]
	} else {
		left = nil // one is on its way
	}
	if len(controlPlanes) == 1 {
		return left, reasonLastGoes, fmt.Sprintf("control plane %s is the last machine, and is told to wipe itself. Where this API lives on it, the API and this object end with it, and nothing tells of that: "+
			"it is done when the machine waits in maintenance mode. As long as this can be read, it isn't%s", controlPlanes[0].Name, waits(controlPlanes))
	}
	return left, reasonControlPlanesGo, fmt.Sprintf("%d control planes are wiped one by one%s", len(controlPlanes), waits(controlPlanes))
}

// staying are the machines whose objects aren't being deleted.
func staying(machines []*v1alpha1.TalosMachine) []*v1alpha1.TalosMachine {
	return slices.DeleteFunc(slices.Clone(machines), func(m *v1alpha1.TalosMachine) bool { return m.DeletionTimestamp != nil })
}

// waits says of machines that are on their way what they wait for.
func waits(machines []*v1alpha1.TalosMachine) string {
	var texts []string
	for _, m := range machines {
		condition := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)
		if m.DeletionTimestamp == nil || condition == nil || condition.Status == metav1.ConditionTrue {
			continue
		}
		if texts = append(texts, m.Name+": "+condition.Message); len(texts) == maxWaits {
			break
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return "; " + strings.Join(texts, "; ")
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

func approvedAt(m *v1alpha1.TalosMachine) time.Time {
	if m.Spec.Approval == nil || m.Spec.Approval.At == nil {
		return time.Time{}
	}
	return m.Spec.Approval.At.Time
}
