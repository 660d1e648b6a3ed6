// SPDX-License-Identifier: Apache-2.0

package kubeletcertificate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"maesh.dev/ichor/controllers/workers"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	informers "maesh.dev/ichor/pkg/client/informers/externalversions/ichor/v1alpha1"
	listers "maesh.dev/ichor/pkg/client/listers/ichor/v1alpha1"
)

// lookAgain is when a request that waits is judged again without an event.
const lookAgain = time.Minute

// Config is what the controller works with.
type Config struct {
	// Requests are those of the signer kubernetes.io/kubelet-serving; others are left alone.
	Requests certificatesinformers.CertificateSigningRequestInformer
	Client   certificatesclient.CertificateSigningRequestsGetter
	Machines informers.TalosMachineInformer
	Clusters informers.TalosClusterInformer
	Recorder record.EventRecorder
	// Clock is the real one if nil.
	Clock clock.WithTicker
}

// Controller decides on requests.
type Controller struct {
	client   certificatesclient.CertificateSigningRequestsGetter
	requests certificateslisters.CertificateSigningRequestLister
	machines listers.TalosMachineLister
	clusters listers.TalosClusterLister
	recorder record.EventRecorder
	queue    workqueue.TypedRateLimitingInterface[string]
	synced   []cache.InformerSynced

	mu sync.Mutex
	// told is what was said last of each request that waits, by its name: the same is said once.
	told map[string]string
}

// New makes a controller and registers it with its informers.
func New(config Config) (*Controller, error) {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	registerMetrics()
	c := &Controller{
		client: config.Client, requests: config.Requests.Lister(), machines: config.Machines.Lister(), clusters: config.Clusters.Lister(),
		recorder: config.Recorder, told: map[string]string{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](500*time.Millisecond, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "kubeletcertificate", Clock: config.Clock},
		),
	}
	all := func(any) { c.enqueuePending(func(*certificatesv1.CertificateSigningRequest) bool { return true }) }
	for _, each := range []struct {
		informer cache.SharedIndexInformer
		enqueue  func(any)
		changed  func(was, is any)
	}{
		{config.Requests.Informer(), c.enqueue, func(_, is any) { c.enqueue(is) }},
		{config.Machines.Informer(), c.enqueueMachine, c.enqueueMachineChanged},
		{config.Clusters.Informer(), all, func(was, is any) {
			if hardened(was) != hardened(is) {
				all(is)
			}
		}},
	} {
		registration, err := each.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: each.enqueue, UpdateFunc: each.changed, DeleteFunc: each.enqueue,
		})
		if err != nil {
			return nil, fmt.Errorf("watch for the controller of kubelets' certificates: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return c, nil
}

func hardened(object any) bool {
	cluster, ok := object.(*v1alpha1.TalosCluster)
	return ok && cluster.Spec.Hardening.KubeletServingCertificates
}

func (c *Controller) enqueue(object any) {
	if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.queue.Add(name)
	}
}

// enqueueMachineChanged leaves out what no request depends on: most of what a machine's status says.
func (c *Controller) enqueueMachineChanged(was, is any) {
	before, ok := was.(*v1alpha1.TalosMachine)
	now, alsoOK := is.(*v1alpha1.TalosMachine)
	reachable := func(m *v1alpha1.TalosMachine) bool {
		return meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReachable)
	}
	if !ok || !alsoOK || before.UID != now.UID || before.Generation != now.Generation || before.Status.NodeName != now.Status.NodeName ||
		before.Status.Hostname != now.Status.Hostname || !slices.Equal(before.Status.Addresses, now.Status.Addresses) || reachable(before) != reachable(now) {
		c.enqueueMachine(is)
	}
}

// enqueueMachine looks again at the requests that a machine can be the cause of: those of its node, and those that wait,
// for they may do so for its addresses.
func (c *Controller) enqueueMachine(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	m, ok := object.(*v1alpha1.TalosMachine)
	if !ok || m.Status.NodeName == "" {
		return
	}
	c.enqueuePending(func(csr *certificatesv1.CertificateSigningRequest) bool {
		return c.waits(csr.Name) || strings.TrimPrefix(csr.Spec.Username, nodeUserPrefix) == m.Status.NodeName
	})
}

func (c *Controller) enqueuePending(concerned func(*certificatesv1.CertificateSigningRequest) bool) {
	all, err := c.requests.List(labels.Everything())
	if err != nil {
		return // each is looked at by itself in a while
	}
	for _, csr := range all {
		if !decided(csr) && concerned(csr) {
			c.queue.Add(csr.Name)
		}
	}
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	err := workers.Pool{Name: "kubelet certificate", Queue: c.queue, Synced: c.synced, Reconcile: c.Reconcile}.Run(ctx, 1)
	waiting.Set(0) // whoever leads now counts
	return err
}
