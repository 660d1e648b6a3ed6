// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
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

// Credentials give access to a cluster's configured nodes.
type Credentials interface {
	CredentialsFor(ctx context.Context, clusterName string) (talos.Credentials, error)
}

// Options bound what the search for machines does. The zero value of each means its default.
type Options struct {
	// Concurrency is how many addresses of a cluster are looked at at a time. Default 256.
	Concurrency int
	// Rate is how many packets a second may ask for a connection, over all clusters; rate.Inf is no limit. An address that
	// refuses takes one, one that is silent two. Default 500: a /24 of addresses that refuse in half a second, a /16 in
	// little more than two minutes. Where all are silent, Concurrency sets the pace: 256 at a time, 2s each.
	Rate rate.Limit
	// Reads is how many machines are read at a time, over all clusters. Default 16.
	Reads int
	// ReadTimeout bounds the reading of one machine. Default 30s.
	ReadTimeout time.Duration
	// ProgressInterval is the time between two writes of a running scan's progress. Default 5s.
	ProgressInterval time.Duration
}

func (o Options) withDefaults() Options {
	return Options{
		Concurrency:      cmp.Or(max(o.Concurrency, 0), 256),
		Rate:             cmp.Or(max(o.Rate, 0), 500),
		Reads:            cmp.Or(max(o.Reads, 0), 16),
		ReadTimeout:      cmp.Or(max(o.ReadTimeout, 0), 30*time.Second),
		ProgressInterval: cmp.Or(max(o.ProgressInterval, 0), 5*time.Second),
	}
}

// Config is what the controller works with.
type Config struct {
	Client      versioned.Interface
	Machines    informers.TalosMachineInformer
	Clusters    informers.TalosClusterInformer
	Dialer      talos.Dialer
	Prober      talos.Prober
	Credentials Credentials
	Recorder    record.EventRecorder
	// Clock is the real one if nil.
	Clock   clock.WithTicker
	Options Options
}

// Controller looks for machines.
type Controller struct {
	Config
	machines listers.TalosMachineLister
	clusters listers.TalosClusterLister
	store    *store
	pacer    *pacer
	reads    chan struct{}
	patience patience

	// recording is held while it is decided which machine is which.
	recording sync.Mutex

	mu     sync.Mutex
	states map[string]*state

	clusterQueue, machineQueue workqueue.TypedRateLimitingInterface[string]
	synced                     []cache.InformerSynced
}

// New makes a controller and registers it with its informers.
func New(config Config) (*Controller, error) {
	if config.Client == nil || config.Machines == nil || config.Clusters == nil || config.Dialer == nil || config.Prober == nil ||
		config.Credentials == nil || config.Recorder == nil {
		return nil, errors.New("make the discovery controller: client, informers, dialer, prober, credentials and recorder are all needed")
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	config.Options = config.Options.withDefaults()
	c := &Controller{
		Config:       config,
		machines:     config.Machines.Lister(),
		clusters:     config.Clusters.Lister(),
		pacer:        newPacer(config.Options.Rate),
		reads:        make(chan struct{}, config.Options.Reads),
		states:       map[string]*state{},
		clusterQueue: newQueue("discovery-clusters", config.Clock),
		machineQueue: newQueue("discovery-machines", config.Clock),
	}
	c.store = &store{client: config.Client, machines: c.machines, now: config.Clock.Now, recent: map[types.UID]written{}}
	for _, each := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{config.Clusters.Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc: c.clusterChanged, UpdateFunc: func(_, now any) { c.clusterChanged(now) }, DeleteFunc: c.clusterGone,
		}},
		{config.Machines.Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc: c.machineChanged, UpdateFunc: func(_, now any) { c.machineChanged(now) }, DeleteFunc: c.machineGone,
		}},
	} {
		registration, err := each.informer.AddEventHandler(each.handler)
		if err != nil {
			return nil, fmt.Errorf("watch for the discovery controller: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return c, nil
}

func newQueue(name string, clock clock.WithTicker) workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](500*time.Millisecond, time.Minute),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: name, Clock: clock},
	)
}

func (c *Controller) clusterChanged(object any) {
	if cluster, ok := object.(*v1alpha1.TalosCluster); ok {
		c.stopOutdated(cluster.Name, cluster)
		c.clusterQueue.Add(cluster.Name)
	}
}

func (c *Controller) clusterGone(object any) {
	if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.stopOutdated(name, nil)
		c.clusterQueue.Add(name)
	}
}

func (c *Controller) machineChanged(object any) {
	if m, ok := object.(*v1alpha1.TalosMachine); ok && waits(m) {
		c.machineQueue.Add(m.Name)
	}
}

// machineGone looks again where a machine was whose object went, and at the machines that were in doubt beside it.
func (c *Controller) machineGone(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	m, ok := object.(*v1alpha1.TalosMachine)
	if !ok {
		return
	}
	c.store.forget(m.UID)
	var addresses []netip.Addr
	for _, text := range m.Status.Addresses {
		if address, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, address)
		}
	}
	if cluster, err := c.clusters.Get(m.Spec.ClusterRef.Name); err == nil {
		planned := slices.DeleteFunc(addresses, func(address netip.Addr) bool { return !inScope(cluster.Spec.Discovery, address) })
		c.again(cluster.Name, 0, planned...)
		c.clusterQueue.Add(cluster.Name)
	}
	machines, err := c.machines.List(labels.Everything())
	if err != nil {
		return
	}
	for _, other := range machines {
		if waits(other) {
			c.machineQueue.Add(other.Name)
		}
	}
}

// Run works until ctx ends, and returns when every goroutine of it has stopped.
func (c *Controller) Run(ctx context.Context, count int) error {
	defer c.clusterQueue.ShutDown()
	defer c.machineQueue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return fmt.Errorf("fill the caches of the discovery controller: %w", context.Cause(ctx))
	}
	var group errgroup.Group
	group.Go(func() error {
		return workers.Pool{Name: "discovery", Queue: c.clusterQueue, Reconcile: c.reconcileCluster}.Run(ctx, count)
	})
	group.Go(func() error {
		reconcile := func(ctx context.Context, name string) (time.Duration, error) { return 0, c.reconcileMachine(ctx, name) }
		return workers.Pool{Name: "discovery", Queue: c.machineQueue, Reconcile: reconcile}.Run(ctx, count)
	})
	return group.Wait()
}
