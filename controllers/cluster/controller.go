// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"maesh.dev/ichor/controllers/workers"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	informers "maesh.dev/ichor/pkg/client/informers/externalversions/ichor/v1alpha1"
	listers "maesh.dev/ichor/pkg/client/listers/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
)

// Credentials give access to a cluster's configured nodes.
type Credentials interface {
	CredentialsFor(ctx context.Context, clusterName string) (talos.Credentials, error)
}

// Config is what the controller works with.
type Config struct {
	Client versioned.Interface
	// Available asks whether the cluster's Kubernetes API is ready.
	Available   func(ctx context.Context) error
	Machines    informers.TalosMachineInformer
	Clusters    informers.TalosClusterInformer
	Store       secretsbundle.Store
	Credentials Credentials
	Dialer      talos.Dialer
	Nodes       corev1client.NodesGetter
	Cordoner    Cordoner
	Recorder    record.EventRecorder
	// Finalize writes a cluster's finalizers; by Client if nil.
	Finalize func(ctx context.Context, cluster *v1alpha1.TalosCluster) error
	// Clock is the real one if nil.
	Clock clock.WithTicker
}

// Controller reconciles TalosClusters.
type Controller struct {
	Config
	machines listers.TalosMachineLister
	clusters listers.TalosClusterLister
	queue    workqueue.TypedRateLimitingInterface[string]
	synced   []cache.InformerSynced
	renewals renewals
}

// New makes a controller and registers it with its informers.
func New(config Config) (*Controller, error) {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.Finalize == nil {
		config.Finalize = finalize(config.Client)
	}
	c := &Controller{
		Config:   config,
		machines: config.Machines.Lister(),
		clusters: config.Clusters.Lister(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](500*time.Millisecond, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "cluster", Clock: config.Clock},
		),
	}
	for _, each := range []struct {
		informer cache.SharedIndexInformer
		enqueue  func(any)
		changed  func(was, is any)
	}{
		{config.Clusters.Informer(), c.enqueue, c.enqueueChanged},
		{config.Machines.Informer(), c.enqueueMachine, func(_, now any) { c.enqueueMachine(now) }},
	} {
		registration, err := each.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    each.enqueue,
			UpdateFunc: each.changed,
			DeleteFunc: each.enqueue,
		})
		if err != nil {
			return nil, fmt.Errorf("watch for the cluster controller: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return c, nil
}

func (c *Controller) enqueue(object any) {
	if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.queue.Add(name)
	}
}

// enqueueChanged leaves out updates of nothing but conditions, which are this controller's own: one whose words change
// with every look would have the next look follow at once.
func (c *Controller) enqueueChanged(before, now any) {
	was, ok := before.(*v1alpha1.TalosCluster)
	is, alsoOK := now.(*v1alpha1.TalosCluster)
	if !ok || !alsoOK || was.ResourceVersion == is.ResourceVersion || !onlyConditions(was, is) {
		c.enqueue(now)
	}
}

// onlyConditions tells whether two versions of a cluster differ in conditions only.
func onlyConditions(was, is *v1alpha1.TalosCluster) bool {
	a, b := was.Status, is.Status
	a.Conditions, b.Conditions = nil, nil
	return was.UID == is.UID && was.DeletionTimestamp.Equal(is.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(was.Spec, is.Spec) && equality.Semantic.DeepEqual(a, b) &&
		equality.Semantic.DeepEqual(was.Annotations, is.Annotations) && equality.Semantic.DeepEqual(was.Labels, is.Labels) &&
		equality.Semantic.DeepEqual(was.Finalizers, is.Finalizers)
}

// How long changes of machines are gathered before their cluster is summed up: a search for machines changes many at
// once. Summing up costs the more the more machines there are, so the more of them are waited for.
const (
	settle        = 500 * time.Millisecond
	settleMachine = 3 * time.Millisecond
	settleLongest = 5 * time.Second
)

// settleFor is settle for a cluster of that many machines.
func settleFor(counts v1alpha1.MachineCounts) time.Duration {
	machines := counts.Approved + counts.Pending + counts.Rejected
	return min(max(settle, time.Duration(machines)*settleMachine), settleLongest)
}

func (c *Controller) enqueueMachine(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	m, ok := object.(*v1alpha1.TalosMachine)
	if !ok || m.Spec.ClusterRef.Name == "" {
		return
	}
	after := settle
	if cluster, err := c.clusters.Get(m.Spec.ClusterRef.Name); err == nil {
		after = settleFor(cluster.Status.Machines)
	}
	c.queue.AddAfter(m.Spec.ClusterRef.Name, after)
}

// Run works until ctx ends, and returns when every worker has stopped.
func (c *Controller) Run(ctx context.Context, count int) error {
	return workers.Pool{Name: "cluster", Queue: c.queue, Synced: c.synced, Reconcile: c.Reconcile}.Run(ctx, count)
}
