// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
)

// Watcher is an informer of machines, patches and operations, as a controller has, and counts how often it began anew.
type Watcher struct {
	Name string `json:"name"`
	// Relists is how often it asked for all objects of a kind, over all three kinds. The first three are its start.
	Relists int64 `json:"relists"`
	// CaughtUp is how many seconds after the end of the attack it held what etcd holds.
	CaughtUp float64 `json:"caughtUpSeconds"`
	// Idle is how often it began anew once it had caught up.
	Idle int64 `json:"relistsWhenIdle"`

	lists   atomic.Int64
	stores  map[string]cache.Store
	factory externalversions.SharedInformerFactory
}

// watch starts a watcher on a server, until the context ends, and waits until it knows everything.
func watch(ctx context.Context, name string, config *rest.Config) (*Watcher, error) {
	w := &Watcher{Name: name}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{next, &w.lists} })
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", name, err)
	}
	w.factory = externalversions.NewSharedInformerFactory(client, 0)
	kinds := w.factory.Ichor().V1alpha1()
	w.stores = map[string]cache.Store{
		"talosmachines":      kinds.TalosMachines().Informer().GetStore(),
		"talosconfigpatches": kinds.TalosConfigPatches().Informer().GetStore(),
		"talosoperations":    kinds.TalosOperations().Informer().GetStore(),
	}
	for _, each := range []cache.SharedIndexInformer{kinds.TalosMachines().Informer(), kinds.TalosConfigPatches().Informer(), kinds.TalosOperations().Informer()} {
		// What it meets is counted, and not told.
		if err := each.SetWatchErrorHandler(func(*cache.Reflector, error) {}); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	w.factory.StartWithContext(ctx)
	for kind, synced := range w.factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("%s: %s never arrived: %w", name, kind, context.Cause(ctx))
		}
	}
	return w, nil
}

// counter counts requests for all objects: lists, and watches that begin with what there is.
type counter struct {
	next  http.RoundTripper
	lists *atomic.Int64
}

// RoundTrip counts and passes on.
func (c counter) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	if query.Get("watch") == "" || query.Get("sendInitialEvents") == "true" {
		c.lists.Add(1)
	}
	return c.next.RoundTrip(req)
}

// catchUp waits until the watcher holds what a list from a quorum gives.
func (w *Watcher) catchUp(ctx context.Context, client versioned.Interface, since time.Time) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = w.compare(ctx, client)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s hasn't caught up: %w: %w", w.Name, err, last)
	}
	w.CaughtUp, w.Relists = time.Since(since).Seconds(), w.lists.Load()
	return nil
}

// idle notes how often it began anew since it caught up.
func (w *Watcher) idle() { w.Idle = w.lists.Load() - w.Relists }

func (w *Watcher) compare(ctx context.Context, client versioned.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	api := client.IchorV1alpha1()
	machines, err := api.TalosMachines().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	patches, err := api.TalosConfigPatches().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	operations, err := api.TalosOperations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	want := map[string]map[string]string{"talosmachines": {}, "talosconfigpatches": {}, "talosoperations": {}}
	for i := range machines.Items {
		want["talosmachines"][machines.Items[i].Name] = machines.Items[i].ResourceVersion
	}
	for i := range patches.Items {
		want["talosconfigpatches"][patches.Items[i].Name] = patches.Items[i].ResourceVersion
	}
	for i := range operations.Items {
		want["talosoperations"][operations.Items[i].Name] = operations.Items[i].ResourceVersion
	}
	for kind, objects := range want {
		if err := holds(w.stores[kind], kind, objects); err != nil {
			return err
		}
	}
	return nil
}

func holds(store cache.Store, kind string, want map[string]string) error {
	have := store.List()
	if len(have) != len(want) {
		return fmt.Errorf("it holds %d %s, etcd %d", len(have), kind, len(want))
	}
	for _, object := range have {
		o, ok := object.(metav1.Object)
		if !ok {
			return fmt.Errorf("it holds a %T", object)
		}
		if want[o.GetName()] != o.GetResourceVersion() {
			return fmt.Errorf("it holds %s %s as of %s, etcd as of %q", kind, o.GetName(), o.GetResourceVersion(), want[o.GetName()])
		}
	}
	return nil
}
