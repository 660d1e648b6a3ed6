// SPDX-License-Identifier: Apache-2.0

package configwatch

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	informers "maesh.dev/ichor/pkg/client/informers/externalversions/ichor/v1alpha1"
	listers "maesh.dev/ichor/pkg/client/listers/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

const (
	// defaultMost is how many machines are watched at most. A watch costs some 100 KiB of memory, 30 of them stacks.
	defaultMost = 2000
	// dialsAtOnce is how many connections are made at the same time: each is a TLS handshake, and a leader that begins
	// makes one to every machine.
	dialsAtOnce = 8
)

// Credentials give access to a cluster's configured nodes.
type Credentials interface {
	CredentialsFor(ctx context.Context, clusterName string) (talos.Credentials, error)
}

// Config is what the controller works with.
type Config struct {
	Machines    informers.TalosMachineInformer
	Credentials Credentials
	Dialer      talos.Dialer
	// Changed is told the name of a machine that runs another configuration than is known.
	Changed func(machine string)
	// Most bounds how many machines are watched; defaultMost if 0. Those beyond are looked at as ever.
	Most int
	// Clock is the real one if nil.
	Clock clock.WithTicker
}

// Controller keeps one watch for each machine that has a configuration and answers.
type Controller struct {
	Config
	machines listers.TalosMachineLister
	synced   cache.InformerSynced
	dials    chan struct{}

	mu sync.Mutex
	// ctx is set while the controller runs.
	ctx     context.Context
	watches map[string]*watch
	running sync.WaitGroup
}

// watch is the watch of one machine.
type watch struct {
	target target
	stop   context.CancelFunc
}

// target is which machine to watch, and where.
type target struct {
	name, cluster string
	uid           types.UID
	address       netip.Addr
}

// New makes a controller and registers it with its informer.
func New(config Config) (*Controller, error) {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.Most == 0 {
		config.Most = defaultMost
	}
	registerMetrics()
	c := &Controller{Config: config, machines: config.Machines.Lister(), dials: make(chan struct{}, dialsAtOnce), watches: map[string]*watch{}}
	registration, err := config.Machines.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.see, UpdateFunc: func(_, is any) { c.see(is) }, DeleteFunc: c.gone,
	})
	if err != nil {
		return nil, fmt.Errorf("watch for the controller of running configurations: %w", err)
	}
	c.synced = registration.HasSynced
	return c, nil
}

// Run watches until ctx ends, and returns when no watch is left.
func (c *Controller) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), c.synced) {
		return fmt.Errorf("fill the cache of the controller of running configurations: %w", context.Cause(ctx))
	}
	c.begin(ctx)
	<-ctx.Done()
	c.mu.Lock()
	c.ctx = nil
	for name := range c.watches {
		c.end(name)
	}
	c.mu.Unlock()
	c.running.Wait()
	return nil
}

// begin starts the watches of the machines that are known.
func (c *Controller) begin(ctx context.Context) {
	c.mu.Lock()
	c.ctx = ctx
	c.mu.Unlock()
	for _, object := range c.Machines.Informer().GetIndexer().List() {
		c.see(object)
	}
}

// see begins, keeps or ends the watch of a machine, by what is known of it.
func (c *Controller) see(object any) {
	m, ok := object.(*v1alpha1.TalosMachine)
	if !ok {
		return
	}
	wanted, watchable := targetOf(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx == nil {
		return
	}
	have := c.watches[m.Name]
	if have != nil && (!watchable || have.target != wanted) {
		c.end(m.Name)
		have = nil
	}
	if !watchable || have != nil || len(c.watches) >= c.Most {
		return
	}
	ctx, stop := context.WithCancel(c.ctx)
	c.watches[m.Name] = &watch{wanted, stop}
	watching.Set(float64(len(c.watches)))
	c.running.Go(func() {
		defer stop()
		c.follow(ctx, wanted)
	})
}

func (c *Controller) gone(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(key)
}

// end stops a watch, if there is one; the lock is held.
func (c *Controller) end(name string) {
	if have := c.watches[name]; have != nil {
		have.stop()
		delete(c.watches, name)
		watching.Set(float64(len(c.watches)))
	}
}

// targetOf is what to watch of a machine: it must be approved, have been Ready with its configuration, not be on its way
// out, and have answered when it was last tried. One that is being installed is looked at all the time anyway, and reboots.
// The look that finds a silent machine answering again brings the watch back.
func targetOf(m *v1alpha1.TalosMachine) (target, bool) {
	configured := m.Spec.Origin == v1alpha1.MachineAdopted || m.Status.Provisioning != nil && m.Status.Provisioning.ConvergedAt != nil
	if m.Spec.ApprovalState != v1alpha1.ApprovalApproved || m.DeletionTimestamp != nil || !configured ||
		!meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReachable) {
		return target{}, false
	}
	text := m.Spec.Address
	if len(m.Status.Addresses) > 0 {
		text = m.Status.Addresses[0] // the one that is dialled
	}
	address, err := netip.ParseAddr(text)
	return target{m.Name, m.Spec.ClusterRef.Name, m.UID, address.Unmap()}, err == nil
}

// pause waits for a while, or until ctx ends.
func (c *Controller) pause(ctx context.Context, d time.Duration) {
	timer := c.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}
