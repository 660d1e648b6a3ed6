// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

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
	Nodes       coreinformers.NodeInformer
	NodeClient  corev1client.NodesGetter
	Bundles     Bundles
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
	nodes    kube.Nodes
	turns    *turns
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
		nodes:    kube.Nodes{Lister: config.Nodes.Lister(), Client: config.NodeClient},
		turns:    newTurns(),
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
			AddFunc: c.enqueueMachine, UpdateFunc: c.enqueueChanged, DeleteFunc: c.enqueueMachine,
		}},
		{config.Clusters.Informer(), handler(c.enqueueCluster)},
		{config.Nodes.Informer(), handler(c.enqueueNode)},
	} {
		registration, err := each.informer.AddEventHandler(each.handler)
		if err != nil {
			return nil, fmt.Errorf("watch for the machine controller: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return c, nil
}

// handler calls enqueue for every object that came, changed or went.
func handler(enqueue func(any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, now any) { enqueue(now) },
		DeleteFunc: enqueue,
	}
}

func (c *Controller) enqueueMachine(object any) {
	if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.queue.Add(name)
	}
}

// enqueueChanged leaves out updates of nothing but conditions: they are this controller's own, or not about what it does,
// and a condition whose words change with every look would have the next look follow at once.
func (c *Controller) enqueueChanged(before, now any) {
	was, ok := before.(*v1alpha1.TalosMachine)
	is, alsoOK := now.(*v1alpha1.TalosMachine)
	if !ok || !alsoOK || was.ResourceVersion == is.ResourceVersion || !onlyConditions(was, is) {
		c.enqueueMachine(now)
	}
}

// onlyConditions tells whether two versions of a machine differ in conditions only.
func onlyConditions(was, is *v1alpha1.TalosMachine) bool {
	a, b := was.Status, is.Status
	a.Conditions, b.Conditions = nil, nil
	return was.UID == is.UID && was.DeletionTimestamp.Equal(is.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(was.Spec, is.Spec) && equality.Semantic.DeepEqual(a, b) &&
		equality.Semantic.DeepEqual(was.Annotations, is.Annotations) && equality.Semantic.DeepEqual(was.Labels, is.Labels) &&
		equality.Semantic.DeepEqual(was.Finalizers, is.Finalizers)
}

// enqueueCluster looks again at the cluster's machines that wait for something.
func (c *Controller) enqueueCluster(object any) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	c.enqueueWhere(func(m *v1alpha1.TalosMachine) bool {
		return m.Spec.ClusterRef.Name == name && m.Spec.ApprovalState == v1alpha1.ApprovalApproved && !isTrue(m, v1alpha1.ConditionReady)
	})
}

func (c *Controller) enqueueNode(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	node, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	c.enqueueWhere(func(m *v1alpha1.TalosMachine) bool {
		return m.Spec.ApprovalState == v1alpha1.ApprovalApproved &&
			(m.Status.NodeName == node.Name || m.Status.NodeName == "" && (m.Spec.Hostname == node.Name || m.Status.Hostname == node.Name))
	})
}

func (c *Controller) enqueueWhere(concerned func(*v1alpha1.TalosMachine) bool) {
	machines, err := c.machines.List(labels.Everything())
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("list machines: %w", err))
		return
	}
	for _, m := range machines {
		if concerned(m) {
			c.queue.Add(m.Name)
		}
	}
}

// Run works until ctx ends, and returns when every worker has stopped: what a worker is doing is finished first.
func (c *Controller) Run(ctx context.Context, workers int) error {
	defer c.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return fmt.Errorf("fill the machine controller's caches: %w", context.Cause(ctx))
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() { c.work(ctx) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
	return nil
}

func (c *Controller) work(ctx context.Context) {
	for {
		name, quit := c.queue.Get()
		if quit {
			return
		}
		c.workOn(ctx, name)
	}
}

func (c *Controller) workOn(ctx context.Context, name string) {
	defer c.queue.Done(name)
	if ctx.Err() != nil {
		return
	}
	after, err := c.Reconcile(ctx, name)
	switch {
	case err == nil:
		c.queue.Forget(name)
		if after > 0 {
			c.queue.AddAfter(name, after)
		}
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		// Our copy was old; the event of the newer one is on its way, or here already.
		c.queue.Forget(name)
		c.queue.AddAfter(name, time.Second)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
	default:
		klog.FromContext(ctx).Error(err, "machine: trying again", "machine", name)
		c.queue.AddRateLimited(name)
	}
}
