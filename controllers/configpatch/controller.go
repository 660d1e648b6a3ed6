// SPDX-License-Identifier: Apache-2.0

package configpatch

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"maesh.dev/ichor/controllers/workers"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	informers "maesh.dev/ichor/pkg/client/informers/externalversions/ichor/v1alpha1"
	listers "maesh.dev/ichor/pkg/client/listers/ichor/v1alpha1"
)

// settle is how long changes of machines and patches are gathered before all patches are summed up: a patch that is
// applied changes many machines, and each of them counts for each of their patches.
const settle = time.Second

// everything is the one key of the queue.
const everything = "all"

// Config is what the controller works with.
type Config struct {
	Client   versioned.Interface
	Patches  informers.TalosConfigPatchInformer
	Machines informers.TalosMachineInformer
	// Clock is the real one if nil.
	Clock clock.WithTicker
}

// Controller writes the status of TalosConfigPatches.
type Controller struct {
	client   versioned.Interface
	patches  listers.TalosConfigPatchLister
	machines listers.TalosMachineLister
	queue    workqueue.TypedRateLimitingInterface[string]
	synced   []cache.InformerSynced
}

// New makes a controller and registers it with its informers.
func New(config Config) (*Controller, error) {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	c := &Controller{
		client: config.Client, patches: config.Patches.Lister(), machines: config.Machines.Lister(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](500*time.Millisecond, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "configpatch", Clock: config.Clock},
		),
	}
	for informer, changed := range map[cache.SharedIndexInformer]func(was, is any) bool{
		config.Patches.Informer(): patchChanged, config.Machines.Informer(): machineChanged,
	} {
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { c.soon() },
			UpdateFunc: func(was, is any) {
				if changed(was, is) {
					c.soon()
				}
			},
			DeleteFunc: func(any) { c.soon() },
		})
		if err != nil {
			return nil, fmt.Errorf("watch for the controller of patches: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return c, nil
}

func (c *Controller) soon() { c.queue.AddAfter(everything, settle) }

// patchChanged leaves out changes of nothing but a status, which are this controller's own.
func patchChanged(was, is any) bool {
	before, ok := was.(*v1alpha1.TalosConfigPatch)
	now, alsoOK := is.(*v1alpha1.TalosConfigPatch)
	return !ok || !alsoOK || before.Generation != now.Generation || before.UID != now.UID || !before.DeletionTimestamp.Equal(now.DeletionTimestamp)
}

// machineChanged leaves out what no patch depends on: most of what a machine's status says.
func machineChanged(was, is any) bool {
	before, ok := was.(*v1alpha1.TalosMachine)
	now, alsoOK := is.(*v1alpha1.TalosMachine)
	return !ok || !alsoOK || before.UID != now.UID || before.Spec.ApprovalState != now.Spec.ApprovalState || before.Spec.Role != now.Spec.Role ||
		before.Spec.ClusterRef != now.Spec.ClusterRef || !before.DeletionTimestamp.Equal(now.DeletionTimestamp) ||
		!equality.Semantic.DeepEqual(before.Labels, now.Labels) || !equality.Semantic.DeepEqual(before.Status.Config, now.Status.Config)
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	reconcile := func(ctx context.Context, _ string) (time.Duration, error) { return 0, c.Reconcile(ctx) }
	return workers.Pool{Name: "configpatch", Queue: c.queue, Synced: c.synced, Reconcile: reconcile}.Run(ctx, 1)
}

// Reconcile sums all patches up. They are looked at together because they may disagree with one another.
func (c *Controller) Reconcile(ctx context.Context) error {
	patches, err := c.patches.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list patches: %w", err)
	}
	machines, err := c.machines.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	conflicts := disagreements(patches, machines)
	var failed error
	for _, patch := range patches {
		status := summarize(patch, machines, conflicts)
		if equality.Semantic.DeepEqual(status, patch.Status) {
			continue
		}
		changed := patch.DeepCopy()
		changed.Status = status
		_, err := c.client.IchorV1alpha1().TalosConfigPatches().UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		switch {
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
			c.soon() // our copy was old; the event of the newer one may have been seen already
		case err != nil:
			failed = fmt.Errorf("write the status of patch %s: %w", patch.Name, err)
		}
	}
	return failed
}
