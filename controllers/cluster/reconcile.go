// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/pkg/talos"
)

const (
	// pollSettled is for a cluster in which nothing is on its way.
	pollSettled = 30 * time.Second
	// pollMoving is for a cluster with control planes that are on their way, or an etcd that isn't well.
	pollMoving = 3 * time.Second
)

// Reasons of conditions, besides those of the API package.
const (
	reasonAvailable        = "Available"
	reasonUnavailable      = "Unavailable"
	reasonSecretsGenerated = "SecretsGenerated"
	reasonSecretsLoaded    = "SecretsLoaded"
	reasonSecretsChanged   = "SecretsChanged"
	reasonQuorum           = "Quorum"
	reasonNoAnswer         = "NoAnswer"
	reasonNoControlPlane   = "NoControlPlane"
	reasonSurplus          = "Surplus"
	reasonAsWanted         = "AsWanted"
)

// Reconcile sums one cluster up, and says when to look again.
func (c *Controller) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	cached, err := c.clusters.Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read cluster %s: %w", name, err)
	}
	cluster := cached.DeepCopy()
	if cluster.DeletionTimestamp != nil {
		return c.end(ctx, cached)
	}
	machines, err := c.machinesOf(name)
	if err != nil {
		return 0, err
	}
	cluster.Status.ObservedGeneration = cluster.Generation
	count(cluster, machines)
	surplus(cluster, machines)
	configuration(cluster, machines)
	if err := c.checkSecrets(ctx, cluster); err != nil {
		return 0, err
	}
	c.checkAvailable(ctx, cluster)
	c.checkEtcd(ctx, cluster, machines)
	if err := c.quarantine(ctx, cluster, machines); err != nil {
		return 0, err
	}
	if err := c.save(ctx, cached, cluster); err != nil {
		return 0, err
	}
	if moving(cluster, machines) {
		return pollMoving, nil
	}
	return pollSettled, nil
}

// machinesOf are a cluster's machines, by name.
func (c *Controller) machinesOf(name string) ([]*v1alpha1.TalosMachine, error) {
	all, err := c.machines.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	var mine []*v1alpha1.TalosMachine
	for _, m := range all {
		if m.Spec.ClusterRef.Name == name {
			mine = append(mine, m)
		}
	}
	slices.SortFunc(mine, func(a, b *v1alpha1.TalosMachine) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return mine, nil
}

// badNews are the conditions that are bad news while they are True.
var badNews = []string{v1alpha1.ConditionSurplusControlPlane, v1alpha1.ConditionDriftDetected, v1alpha1.ConditionConfigurationPending,
	v1alpha1.ConditionMachinesQuarantined, v1alpha1.ConditionDeleting}

// save writes the status if it means something else than before, with events for the conditions that moved.
func (c *Controller) save(ctx context.Context, was, now *v1alpha1.TalosCluster) error {
	if equality.Semantic.DeepEqual(was.Status, now.Status) {
		return nil
	}
	written, err := c.Client.IchorV1alpha1().TalosClusters().UpdateStatus(ctx, now, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write the status of cluster %s: %w", now.Name, err)
	}
	for _, condition := range now.Status.Conditions {
		before := meta.FindStatusCondition(was.Status.Conditions, condition.Type)
		if before != nil && before.Status == condition.Status || before == nil && condition.Status != metav1.ConditionTrue {
			continue
		}
		kind := corev1.EventTypeNormal
		if (condition.Status == metav1.ConditionTrue) == slices.Contains(badNews, condition.Type) {
			kind = corev1.EventTypeWarning
		}
		if before == nil && kind == corev1.EventTypeNormal {
			continue
		}
		c.Recorder.Event(written, kind, condition.Reason, condition.Type+": "+condition.Message)
	}
	return nil
}

// set writes a condition, with the same words for the same cause.
func set(cluster *v1alpha1.TalosCluster, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: talos.Steady(message), ObservedGeneration: cluster.Generation,
	})
}

// checkAvailable asks the cluster's Kubernetes API.
func (c *Controller) checkAvailable(ctx context.Context, cluster *v1alpha1.TalosCluster) {
	if err := c.Available(ctx); err != nil {
		set(cluster, v1alpha1.ConditionAvailable, metav1.ConditionFalse, reasonUnavailable, err.Error())
		return
	}
	set(cluster, v1alpha1.ConditionAvailable, metav1.ConditionTrue, reasonAvailable, "the Kubernetes API answers that it is ready")
}

// letGo takes the finalizer off a cluster that is being deleted and has no approved machine and no slot left. What the
// cache says isn't enough for that.
func (c *Controller) letGo(ctx context.Context, cluster *v1alpha1.TalosCluster) error {
	if !slices.Contains(cluster.Finalizers, v1alpha1.ClusterFinalizer) || len(cluster.Status.ControlPlaneSlots) > 0 {
		return nil
	}
	approved, err := c.approvedMachines(ctx, cluster.Name)
	if err != nil || len(approved) > 0 {
		return err
	}
	cluster.Finalizers = slices.DeleteFunc(cluster.Finalizers, func(name string) bool { return name == v1alpha1.ClusterFinalizer })
	if err := c.Finalize(ctx, cluster); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take the finalizer off cluster %s: %w", cluster.Name, err)
	}
	return nil
}

// finalize writes a cluster's finalizers through its subresource.
func finalize(client versioned.Interface) func(context.Context, *v1alpha1.TalosCluster) error {
	return func(ctx context.Context, cluster *v1alpha1.TalosCluster) error {
		return client.IchorV1alpha1().RESTClient().Put().Resource("talosclusters").Name(cluster.Name).SubResource("finalize").Body(cluster).Do(ctx).Error()
	}
}

// approvedMachines asks the API itself for the names of a cluster's approved machines.
func (c *Controller) approvedMachines(ctx context.Context, cluster string) ([]string, error) {
	list, err := c.Client.IchorV1alpha1().TalosMachines().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the machines of cluster %s: %w", cluster, err)
	}
	var names []string
	for _, m := range list.Items {
		if m.Spec.ClusterRef.Name == cluster && m.Spec.ApprovalState == v1alpha1.ApprovalApproved {
			names = append(names, m.Name)
		}
	}
	return names, nil
}
