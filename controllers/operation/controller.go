// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"maesh.dev/ichor/controllers/drain"
	"maesh.dev/ichor/controllers/operation/gates"
	"maesh.dev/ichor/controllers/workers"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	informers "maesh.dev/ichor/pkg/client/informers/externalversions/ichor/v1alpha1"
	listers "maesh.dev/ichor/pkg/client/listers/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/kube"
	"maesh.dev/ichor/pkg/talos"
)

// Credentials give access to a cluster's configured nodes.
type Credentials interface {
	CredentialsFor(ctx context.Context, clusterName string) (talos.Credentials, error)
}

// Stager gives machines a configuration that takes effect at their next reboot.
type Stager interface {
	// StageConfiguration renders a machine's configuration and leaves it with the machine for its next boot, if something
	// waits for a reboot, or anyway. It may be called any number of times. The hash is that of what was left, empty if
	// nothing was.
	StageConfiguration(ctx context.Context, machine string, anyway bool) (hash string, err error)
	// UnstageConfiguration has the machine's next boot be with the configuration that it runs.
	UnstageConfiguration(ctx context.Context, machine string) error
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

// APIServers asks each kube-apiserver of a cluster by itself.
type APIServers interface {
	// DeprecatedAPIs are the API versions whose end is announced that the kube-apiserver at an address, host:port, was asked for
	// since it started.
	DeprecatedAPIs(ctx context.Context, address string) ([]kube.DeprecatedAPI, error)
}

// Config is what the controller works with.
type Config struct {
	Client      versioned.Interface
	Operations  informers.TalosOperationInformer
	Machines    informers.TalosMachineInformer
	Clusters    informers.TalosClusterInformer
	Patches     informers.TalosConfigPatchInformer
	Pods        corev1client.PodsGetter
	Nodes       corev1client.NodesGetter
	APIServers  APIServers
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
	patches    listers.TalosConfigPatchLister
	queue      workqueue.TypedRateLimitingInterface[string]
	synced     []cache.InformerSynced
	// started is when this process began to work: the time that nobody worked counts against no step.
	started time.Time
	// written is when the status of each operation that isn't over was written last.
	mu      sync.Mutex
	written map[types.UID]time.Time
	errands errands
}

// New makes a controller and registers it with its informers.
func New(config Config) (*Controller, error) {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	registerMetrics()
	c := &Controller{
		Config: config, written: map[types.UID]time.Time{}, operations: config.Operations.Lister(), machines: config.Machines.Lister(), clusters: config.Clusters.Lister(),
		patches: config.Patches.Lister(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](500*time.Millisecond, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "operation", Clock: config.Clock},
		),
	}
	c.synced = append(c.synced, config.Patches.Informer().HasSynced)
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		config.Operations.Informer(): cache.ResourceEventHandlerFuncs{AddFunc: c.enqueue, UpdateFunc: c.operationChanged, DeleteFunc: c.operationGone},
		config.Machines.Informer():   cache.ResourceEventHandlerFuncs{UpdateFunc: c.machineChanged},
		// A claim brings a look at the operation that it is for, which may have ended, or be gone.
		config.Clusters.Informer(): cache.ResourceEventHandlerFuncs{AddFunc: c.enqueueHolder, UpdateFunc: func(_, is any) { c.enqueueHolder(is) }},
	} {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, fmt.Errorf("watch for the controller of operations: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
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

// operationChanged leaves out what the controller itself writes while it works.
func (c *Controller) operationChanged(was, is any) {
	before, ok := was.(*v1alpha1.TalosOperation)
	now, alsoOK := is.(*v1alpha1.TalosOperation)
	if !ok || !alsoOK || before.Generation != now.Generation || before.UID != now.UID || isOver(before) != isOver(now) ||
		!before.DeletionTimestamp.Equal(now.DeletionTimestamp) || !equality.Semantic.DeepEqual(before.Spec, now.Spec) {
		c.enqueue(is)
	}
}

// operationGone takes back what is held for an operation that was deleted, and lets the others have its place.
func (c *Controller) operationGone(object any) {
	if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.queue.Add(name)
	}
	c.enqueueOpen()
}

// enqueueHolder calls the operation that holds a cluster.
func (c *Controller) enqueueHolder(object any) {
	if cluster, ok := object.(*v1alpha1.TalosCluster); ok && cluster.Status.ActiveOperation != nil {
		c.queue.Add(cluster.Status.ActiveOperation.Name)
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

// Run works until ctx ends, and returns when every worker has stopped: what a worker is doing is finished first. What
// machines do meanwhile isn't waited for; the next process finds out.
func (c *Controller) Run(ctx context.Context, count int) error {
	defer c.errands.stop()
	defer c.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return fmt.Errorf("fill the caches of the operation controller: %w", context.Cause(ctx))
	}
	c.started = c.Clock.Now()
	return workers.Pool{Name: "operation", Queue: c.queue, Reconcile: c.Reconcile}.Run(ctx, count)
}
