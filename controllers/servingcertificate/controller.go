// SPDX-License-Identifier: Apache-2.0

package servingcertificate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/clock"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Config is what the controller works with.
type Config struct {
	Kubernetes kubernetes.Interface
	Aggregator aggregator.Interface
	Recorder   record.EventRecorder
	Settings   Settings
	// Clock is the real one if nil.
	Clock clock.WithTicker
}

// Controller keeps the serving certificate of ichor-apiserver good.
type Controller struct {
	Config
	queue workqueue.TypedRateLimitingInterface[string]
	// said is what was last said about certificates that are somebody else's, so that it is said once. One worker uses it.
	said string
}

// key is the one entry of the queue: the objects are judged together.
const key = "serving-certificate"

// New makes a controller.
func New(config Config) (*Controller, error) {
	if err := config.Settings.Validate(); err != nil {
		return nil, err
	}
	config.Settings = config.Settings.complete()
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	registerMetrics()
	return &Controller{Config: config}, nil
}

// Run works until ctx ends. The watches only say that something changed: what is decided from is read anew.
func (c *Controller) Run(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 30*time.Second),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "serving_certificate", Clock: c.Clock},
	)
	var running sync.WaitGroup
	for _, each := range c.watched() {
		_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: each.lists, ObjectType: each.kind, Transform: trim,
			Handler: cache.ResourceEventHandlerFuncs{
				AddFunc: func(any) { c.queue.Add(key) }, UpdateFunc: func(any, any) { c.queue.Add(key) }, DeleteFunc: func(any) { c.queue.Add(key) },
			},
		})
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	c.queue.Add(key)
	running.Go(func() { c.work(ctx) })
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
	return nil
}

type watched struct {
	lists cache.ListerWatcher
	kind  runtime.Object
}

// watched are the three objects, each by its name: that is all that the controller may watch.
func (c *Controller) watched() []watched {
	secrets, services := c.Kubernetes.CoreV1().Secrets(v1alpha1.SystemNamespace), c.Aggregator.ApiregistrationV1().APIServices()
	named := func(options metav1.ListOptions, name string) metav1.ListOptions {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		return options
	}
	all := []watched{{cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return services.List(ctx, named(options, APIServiceName))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return services.Watch(ctx, named(options, APIServiceName))
		},
	}, c.Aggregator), &apiregistrationv1.APIService{}}}
	for _, name := range []string{AuthoritySecretName, SecretName} {
		all = append(all, watched{cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return secrets.List(ctx, named(options, name))
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return secrets.Watch(ctx, named(options, name))
			},
		}, c.Kubernetes), &corev1.Secret{}})
	}
	return all
}

// trim keeps keys out of memory: only that something changed is of interest.
func trim(object any) (any, error) {
	if secret, ok := object.(*corev1.Secret); ok {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID, ResourceVersion: secret.ResourceVersion}}, nil
	}
	return object, nil
}

func (c *Controller) work(ctx context.Context) {
	for {
		_, quit := c.queue.Get()
		if quit {
			return
		}
		c.workOnce(ctx)
	}
}

func (c *Controller) workOnce(ctx context.Context) {
	defer c.queue.Done(key)
	if ctx.Err() != nil {
		return
	}
	after, err := c.Reconcile(ctx)
	switch {
	case err == nil:
		c.queue.Forget(key)
		c.queue.AddAfter(key, after)
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		// Somebody else wrote. What is there now is looked at again.
		c.queue.AddRateLimited(key)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
	default:
		klog.FromContext(ctx).Error(err, "serving certificate: trying again")
		c.queue.AddRateLimited(key)
	}
}

// maxSteps bounds the writes of one round; a whole rotation takes fewer.
const maxSteps = 10

// Reconcile does what can be done now, and says when to look again.
func (c *Controller) Reconcile(ctx context.Context) (time.Duration, error) {
	for range maxSteps {
		objects, err := c.get(ctx)
		if err != nil {
			return 0, err
		}
		now := c.Clock.Now()
		o := read(objects.authority, objects.serving, objects.service)
		c.tell(ctx, o)
		next := plan(o, c.Settings, now)
		if next.action == rest {
			return next.after, nil
		}
		if err := c.take(ctx, next, objects, o, now); err != nil {
			return 0, fmt.Errorf("%s: %w", next.action, err)
		}
		klog.FromContext(ctx).Info("serving certificate: done", "step", string(next.action))
	}
	return time.Second, nil
}

// tell puts what was observed into metrics and, once, into the log.
func (c *Controller) tell(ctx context.Context, o observed) {
	measure(o)
	said := o.notOurs
	if fault := errors.Join(o.faults...); fault != nil {
		said = fault.Error() + "; it is replaced"
	}
	if said != "" && said != c.said {
		klog.FromContext(ctx).Info("serving certificate: " + said)
	}
	c.said = said
}
