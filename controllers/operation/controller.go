// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"maesh.dev/ichor/controllers/operation/drain"
	"maesh.dev/ichor/controllers/operation/gates"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	informers "maesh.dev/ichor/pkg/client/informers/externalversions/ichor/v1alpha1"
	listers "maesh.dev/ichor/pkg/client/listers/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// Credentials give access to a cluster's configured nodes.
type Credentials interface {
	CredentialsFor(ctx context.Context, clusterName string) (talos.Credentials, error)
}

// Stager gives machines a configuration that takes effect at their next reboot.
type Stager interface {
	// StageConfiguration renders a machine's configuration and leaves it with the machine for its next boot. It may be
	// called any number of times. Nothing is staged where nothing waits for a reboot.
	StageConfiguration(ctx context.Context, machine string) (staged bool, err error)
}

// Drainer moves pods away from Nodes. All of it may be repeated.
type Drainer interface {
	// Cordon lets nothing new onto a Node, and says whether it is the operation's to uncordon.
	Cordon(ctx context.Context, node string, operation types.UID) (ours bool, err error)
	// Drain makes one pass, and says what is still in the way.
	Drain(ctx context.Context, node string, options drain.Options) (drain.Result, error)
	// Uncordon takes back what Cordon did for the operation, and nothing else.
	Uncordon(ctx context.Context, node string, operation types.UID) error
}

// Gatekeeper looks at the gates that a person gave an operation.
type Gatekeeper interface {
	Check(ctx context.Context, gate v1alpha1.OperationGate, occasion gates.Occasion) (gates.Result, error)
}

// Config is what the controller works with.
type Config struct {
	Client      versioned.Interface
	Operations  informers.TalosOperationInformer
	Machines    informers.TalosMachineInformer
	Clusters    informers.TalosClusterInformer
	Nodes       corev1client.NodesGetter
	Credentials Credentials
	Dialer      talos.Dialer
	Stager      Stager
	Drainer     Drainer
	Snapshots   Snapshots
	Gates       Gatekeeper
	Recorder    record.EventRecorder
	// Clock is the real one if nil.
	Clock clock.WithTicker
}

// Controller reconciles TalosOperations.
type Controller struct {
	Config
	operations listers.TalosOperationLister
	machines   listers.TalosMachineLister
	clusters   listers.TalosClusterLister
	queue      workqueue.TypedRateLimitingInterface[string]
	synced     []cache.InformerSynced
}

// New makes a controller and registers it with its informers.
func New(config Config) (*Controller, error) {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	registerMetrics()
	c := &Controller{
		Config: config, operations: config.Operations.Lister(), machines: config.Machines.Lister(), clusters: config.Clusters.Lister(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](500*time.Millisecond, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "operation", Clock: config.Clock},
		),
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		config.Operations.Informer(): cache.ResourceEventHandlerFuncs{AddFunc: c.enqueue, UpdateFunc: func(_, is any) { c.enqueue(is) }, DeleteFunc: func(any) { c.enqueueOpen() }},
		config.Machines.Informer():   cache.ResourceEventHandlerFuncs{UpdateFunc: c.machineChanged},
	} {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, fmt.Errorf("watch for the controller of operations: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	c.synced = append(c.synced, config.Clusters.Informer().HasSynced)
	return c, nil
}

// enqueue calls an operation; one that is over lets the others have its place.
func (c *Controller) enqueue(obj any) {
	operation, ok := obj.(*v1alpha1.TalosOperation)
	if !ok {
		return
	}
	c.queue.Add(operation.Name)
	if isOver(operation) {
		c.enqueueOpen()
	}
}

// enqueueOpen calls every operation that isn't over.
func (c *Controller) enqueueOpen() {
	all, err := c.operations.List(labels.Everything())
	if err != nil {
		return // each looks again by itself
	}
	for _, operation := range all {
		if !isOver(operation) {
			c.queue.Add(operation.Name)
		}
	}
}

// machineChanged calls the operations that work on the machine, when something has changed that they wait for.
func (c *Controller) machineChanged(was, is any) {
	before, ok := was.(*v1alpha1.TalosMachine)
	now, alsoOK := is.(*v1alpha1.TalosMachine)
	if !ok || !alsoOK || isReady(before) == isReady(now) && before.Status.Stage == now.Status.Stage && waitsForReboot(before) == waitsForReboot(now) {
		return
	}
	all, err := c.operations.List(labels.Everything())
	if err != nil {
		return // each looks again by itself
	}
	for _, operation := range all {
		if operation.Status.Current == now.Name && !isOver(operation) {
			c.queue.Add(operation.Name)
		}
	}
}

// Run works until ctx ends, and returns when every worker has stopped: what a worker is doing is finished first.
func (c *Controller) Run(ctx context.Context, workers int) error {
	defer c.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return fmt.Errorf("fill the caches of the controller of operations: %w", context.Cause(ctx))
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for c.next(ctx) { //nolint:revive // the work is in the condition
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
	return nil
}

func (c *Controller) next(ctx context.Context) bool {
	name, quit := c.queue.Get()
	if quit {
		return false
	}
	defer c.queue.Done(name)
	if ctx.Err() != nil {
		return true
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
		klog.FromContext(ctx).Error(err, "operation: trying again", "operation", name)
		c.queue.AddRateLimited(name)
	}
	return true
}
