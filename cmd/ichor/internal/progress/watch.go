// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	informers "maesh.dev/ichor/pkg/client/informers/externalversions/ichor/v1alpha1"
)

// WatchMachines is the work of following machines until each is Ready or failed.
func WatchMachines(client versioned.Interface, board *Machines, now func() time.Time) Work {
	return func(ctx context.Context, update func(func() string)) error {
		done := newSignal()
		change := func(change func() string) {
			update(func() string {
				board.trouble = ""
				line := change()
				if board.Done() {
					done.fire()
				}
				return line
			})
		}
		observe := func(object any) {
			if machine, ok := object.(*v1alpha1.TalosMachine); ok {
				change(func() string { return board.Observe(machine, now()) })
			}
		}
		informer := informers.NewFilteredTalosMachineInformer(client, 0, cache.Indexers{}, narrow(board.names))
		err := watch(ctx, informer, watcher{
			handler: cache.ResourceEventHandlerFuncs{
				AddFunc:    observe,
				UpdateFunc: func(_, object any) { observe(object) },
				DeleteFunc: func(object any) { change(func() string { return board.Vanished(nameOf(object), now()) }) },
			},
			synced: func() {
				for _, name := range board.names {
					if _, exists, _ := informer.GetStore().GetByKey(name); !exists {
						change(func() string { return board.Vanished(name, now()) })
					}
				}
			},
			lost: func(text string) {
				update(func() string { return tell(&board.trouble, text) })
			},
			done: done.fired,
		})
		if err != nil {
			return err
		}
		return board.Err()
	}
}

// tell remembers a trouble, and returns the line about it if it is news.
func tell(trouble *string, text string) string {
	if *trouble == text {
		return ""
	}
	*trouble = text
	return text
}

// signal is fired once, and can be fired again without harm.
type signal struct {
	once  sync.Once
	fired chan struct{}
}

func newSignal() *signal { return &signal{fired: make(chan struct{})} }

func (s *signal) fire() { s.once.Do(func() { close(s.fired) }) }

// narrow asks the server for one object where that is all that is watched.
func narrow(names []string) func(*metav1.ListOptions) {
	return func(options *metav1.ListOptions) {
		if len(names) == 1 {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", names[0]).String()
		}
	}
}

func nameOf(object any) string {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	if machine, ok := object.(*v1alpha1.TalosMachine); ok {
		return machine.Name
	}
	return ""
}

// watcher is what happens while an informer runs.
type watcher struct {
	handler cache.ResourceEventHandler
	// synced is called once the first list was taken in.
	synced func()
	// lost is called when the connection broke; it is tried again.
	lost func(text string)
	// done ends the watch.
	done <-chan struct{}
}

// watch runs an informer until it is done or the context ends. A refusal by the server ends it too.
func watch(ctx context.Context, informer cache.SharedIndexInformer, watcher watcher) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		switch {
		case err == nil, apierrors.IsResourceExpired(err), apierrors.IsGone(err), ctx.Err() != nil:
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			cancel(err)
		default:
			watcher.lost("no news, trying again: " + cli.Explain(err)[0])
		}
	})
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(watcher.handler)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	running.Go(func() { informer.RunWithContext(ctx) })
	running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			watcher.synced()
		}
	})
	select {
	case <-watcher.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Names of machines, each once, in the order given.
func Names(machines []*v1alpha1.TalosMachine) []string {
	names := make([]string, 0, len(machines))
	for _, machine := range machines {
		if !slices.Contains(names, machine.Name) {
			names = append(names, machine.Name)
		}
	}
	return names
}
