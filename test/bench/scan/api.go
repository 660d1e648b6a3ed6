// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned/fake"
)

// memoryAPI is Ichor's API in memory, so that a scan's writes cost next to nothing: what they cost on a real server is not
// the scan's. It counts them and the time they take.
type memoryAPI struct {
	*fake.Clientset
	mu      sync.Mutex
	version int64
	writes  int
	took    time.Duration
}

func newMemoryAPI(cluster *v1alpha1.TalosCluster) (*memoryAPI, error) {
	api := &memoryAPI{Clientset: fake.NewSimpleClientset()}
	api.PrependReactor("create", "talosmachines", api.counted(api.create))
	api.PrependReactor("update", "*", api.counted(api.updateStatus))
	cluster.ResourceVersion = "1"
	api.version = 1
	return api, api.Tracker().Add(cluster)
}

// counted makes writes come one after the other.
func (api *memoryAPI) counted(write func(clienttesting.Action) (runtime.Object, error)) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		api.mu.Lock()
		defer api.mu.Unlock()
		began := time.Now()
		object, err := write(action)
		api.took += time.Since(began)
		api.writes++
		return true, object, err
	}
}

func (api *memoryAPI) nextVersion() string {
	api.version++
	return strconv.FormatInt(api.version, 10)
}

func (api *memoryAPI) create(action clienttesting.Action) (runtime.Object, error) {
	create, ok := action.(clienttesting.CreateAction)
	if !ok {
		return nil, fmt.Errorf("%T is no creation", action)
	}
	m, ok := create.GetObject().(*v1alpha1.TalosMachine)
	if !ok {
		return nil, fmt.Errorf("%T is no machine", create.GetObject())
	}
	m = m.DeepCopy()
	m.UID, m.ResourceVersion, m.Generation = types.UID(m.Name), api.nextVersion(), 1
	m.CreationTimestamp, m.Status = metav1.Now(), v1alpha1.TalosMachineStatus{}
	return m, api.Tracker().Create(action.GetResource(), m, "")
}

func (api *memoryAPI) updateStatus(action clienttesting.Action) (runtime.Object, error) {
	update, ok := action.(clienttesting.UpdateAction)
	if !ok || action.GetSubresource() != "status" {
		return nil, fmt.Errorf("%T of %q is no write of a status", action, action.GetSubresource())
	}
	next := update.GetObject().DeepCopyObject()
	given, err := meta.Accessor(next)
	if err != nil {
		return nil, err
	}
	stored, err := api.Tracker().Get(action.GetResource(), "", given.GetName())
	if err != nil {
		return nil, err
	}
	now, err := meta.Accessor(stored)
	if err != nil {
		return nil, err
	}
	if now.GetResourceVersion() != given.GetResourceVersion() {
		return nil, apierrors.NewConflict(action.GetResource().GroupResource(), given.GetName(), fmt.Errorf("it is at version %s", now.GetResourceVersion()))
	}
	given.SetResourceVersion(api.nextVersion())
	return next, api.Tracker().Update(action.GetResource(), next, "")
}

// awaitScan waits for the end of the first scan and returns what it found.
func (api *memoryAPI) awaitScan(ctx context.Context) (v1alpha1.DiscoveryStatus, error) {
	watch, err := api.IchorV1alpha1().TalosClusters().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return v1alpha1.DiscoveryStatus{}, err
	}
	defer watch.Stop()
	for {
		select {
		case event, open := <-watch.ResultChan():
			if !open {
				return v1alpha1.DiscoveryStatus{}, errors.New("the watch of the cluster ended before the scan")
			}
			cluster, ok := event.Object.(*v1alpha1.TalosCluster)
			if ok && cluster.Status.Discovery.ObservedGeneration == cluster.Generation {
				return cluster.Status.Discovery, nil
			}
		case <-ctx.Done():
			return v1alpha1.DiscoveryStatus{}, fmt.Errorf("wait for the end of the scan: %w", ctx.Err())
		}
	}
}

// written is how many writes there were, and how long they took in all.
func (api *memoryAPI) written() (int, time.Duration) {
	api.mu.Lock()
	defer api.mu.Unlock()
	return api.writes, api.took
}
