// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
	"maesh.dev/ichor/pkg/talos"
)

// Config is what the controller works with.
type Config struct {
	Client   versioned.Interface
	Reclaims informers.MachineReclaimInformer
	// Secrets holds the client configurations of the machines' own clusters.
	Secrets  corev1client.SecretsGetter
	Dialer   talos.Dialer
	Prober   talos.Prober
	Recorder record.EventRecorder
	// Clock is the real one if nil.
	Clock clock.WithTicker
}

// Controller reconciles MachineReclaims.
type Controller struct {
	Config
	reclaims listers.MachineReclaimLister
	queue    workqueue.TypedRateLimitingInterface[string]
	synced   cache.InformerSynced
	// told is when this process told a machine last to wipe itself, by the reclaim's UID.
	mu   sync.Mutex
	told map[types.UID]time.Time
}

// New makes a controller and registers it with its informer.
func New(config Config) (*Controller, error) {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	registerMetrics()
	c := &Controller{
		Config: config, reclaims: config.Reclaims.Lister(), told: map[types.UID]time.Time{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](500*time.Millisecond, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "reclaim", Clock: config.Clock},
		),
	}
	registration, err := config.Reclaims.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.enqueue, UpdateFunc: c.changed, DeleteFunc: c.gone,
	})
	if err != nil {
		return nil, fmt.Errorf("watch for the controller of reclaims: %w", err)
	}
	c.synced = registration.HasSynced
	return c, nil
}

func (c *Controller) enqueue(object any) {
	if reclaim, ok := object.(*v1alpha1.MachineReclaim); ok && !over(reclaim) {
		c.queue.Add(reclaim.Name)
	}
}

// changed leaves out what the controller itself writes, which says when it looks again.
func (c *Controller) changed(was, is any) {
	before, ok := was.(*v1alpha1.MachineReclaim)
	now, alsoOK := is.(*v1alpha1.MachineReclaim)
	if ok && alsoOK && before.UID == now.UID && before.Generation == now.Generation && before.DeletionTimestamp.Equal(now.DeletionTimestamp) {
		return
	}
	c.enqueue(is)
}

func (c *Controller) gone(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	if reclaim, ok := object.(*v1alpha1.MachineReclaim); ok {
		c.forget(reclaim.UID)
	}
}

func (c *Controller) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.told, uid)
}

// over tells whether nothing will happen any more.
func over(reclaim *v1alpha1.MachineReclaim) bool {
	switch reclaim.Status.Phase {
	case v1alpha1.ReclaimSucceeded, v1alpha1.ReclaimRefused, v1alpha1.ReclaimFailed:
		return true
	}
	return false
}

// Run works until ctx ends, and returns when every worker has stopped: what a worker is doing is finished first.
func (c *Controller) Run(ctx context.Context, count int) error {
	return workers.Pool{Name: "reclaim", Queue: c.queue, Synced: []cache.InformerSynced{c.synced}, Reconcile: c.Reconcile}.Run(ctx, count)
}
