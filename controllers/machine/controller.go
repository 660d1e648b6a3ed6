// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"time"

	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"maesh.dev/ichor/controllers/workers"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	informers "maesh.dev/ichor/pkg/client/informers/externalversions/ichor/v1alpha1"
	listers "maesh.dev/ichor/pkg/client/listers/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/kube"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
)

// Bundles reads a cluster's secrets, held against the hash that the cluster remembers.
type Bundles interface {
	LoadFor(ctx context.Context, cluster *v1alpha1.TalosCluster) (*secretsbundle.Bundle, error)
}

// Credentials give access to a cluster's configured nodes.
type Credentials interface {
	CredentialsFor(ctx context.Context, clusterName string) (talos.Credentials, error)
}

// Config is what the controller works with.
type Config struct {
	Client      versioned.Interface
	Machines    informers.TalosMachineInformer
	Clusters    informers.TalosClusterInformer
	Patches     informers.TalosConfigPatchInformer
	Nodes       coreinformers.NodeInformer
	NodeClient  NodeClient
	Drainer     Drainer
	Snapshots   Snapshots
	Bundles     Bundles
	Values      PatchValues
	Credentials Credentials
	Dialer      talos.Dialer
	Prober      talos.Prober
	Recorder    record.EventRecorder
	// Clock is the real one if nil.
	Clock clock.WithTicker
}

// Controller reconciles TalosMachines.
type Controller struct {
	Config
	machines listers.TalosMachineLister
	clusters listers.TalosClusterLister
	patches  listers.TalosConfigPatchLister
	nodes    kube.Nodes
	library  *library
	turns    *turns
	looks    *looks
	queue    workqueue.TypedRateLimitingInterface[string]
	synced   []cache.InformerSynced
}

// New makes a controller and registers it with its informers.
func New(config Config) (*Controller, error) {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	registerMetrics()
	c := &Controller{
		Config:   config,
		machines: config.Machines.Lister(),
		clusters: config.Clusters.Lister(),
		patches:  config.Patches.Lister(),
		library:  newLibrary(),
		nodes:    kube.Nodes{Lister: config.Nodes.Lister(), Client: config.NodeClient},
		turns:    newTurns(),
		looks:    newLooks(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](500*time.Millisecond, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "machine", Clock: config.Clock},
		),
	}
	for _, each := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{config.Machines.Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc: c.enqueueMachine, UpdateFunc: c.enqueueChanged, DeleteFunc: c.enqueueGone,
		}},
		{config.Clusters.Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc: c.enqueueCluster, UpdateFunc: c.enqueueClusterChanged, DeleteFunc: c.enqueueCluster,
		}},
		{config.Patches.Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc: c.enqueuePatch, UpdateFunc: c.enqueuePatchChanged, DeleteFunc: c.enqueuePatchGone,
		}},
		{config.Nodes.Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc: c.enqueueNode, UpdateFunc: c.enqueueNodeChanged, DeleteFunc: c.enqueueNode,
		}},
	} {
		registration, err := each.informer.AddEventHandler(each.handler)
		if err != nil {
			return nil, fmt.Errorf("watch for the machine controller: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return c, nil
}

// Run works until ctx ends, and returns when every worker has stopped: what a worker is doing is finished first.
func (c *Controller) Run(ctx context.Context, count int) error {
	return workers.Pool{Name: "machine", Queue: c.queue, Synced: c.synced, Reconcile: c.Reconcile}.Run(ctx, count)
}
