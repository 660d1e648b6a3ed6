// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	informers "maesh.dev/ichor/pkg/client/informers/externalversions/ichor/v1alpha1"
)

// WatchOperation is the work of following an operation until it has ended, or is Paused where that ends the watching.
// What came of it is the board's Latest.
func WatchOperation(client versioned.Interface, board *Operation) Work {
	return func(ctx context.Context, update func(func() string)) error {
		done := newSignal()
		observe := func(object any) {
			operation, ok := object.(*v1alpha1.TalosOperation)
			if !ok {
				return
			}
			var lines []string
			update(func() string {
				board.trouble = ""
				// What came after the end is no part of it.
				if !board.Done() {
					lines = board.Observe(operation)
				}
				return first(lines)
			})
			for _, line := range lines[min(1, len(lines)):] {
				update(func() string { return line })
			}
			update(func() string {
				if board.Done() {
					done.fire()
				}
				return ""
			})
		}
		vanish := func() {
			update(func() string {
				if board.Done() {
					return ""
				}
				board.gone = true
				done.fire()
				return "the operation's object was deleted"
			})
		}
		narrowed := func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", board.name).String()
		}
		informer := informers.NewFilteredTalosOperationInformer(client, 0, cache.Indexers{}, narrowed)
		err := watch(ctx, informer, watcher{
			handler: cache.ResourceEventHandlerFuncs{
				AddFunc: observe, UpdateFunc: func(_, object any) { observe(object) }, DeleteFunc: func(any) { vanish() },
			},
			synced: func() {
				if _, exists, _ := informer.GetStore().GetByKey(board.name); !exists {
					vanish()
				}
			},
			lost: func(text string) { update(func() string { return tell(&board.trouble, text) }) },
			done: done.fired,
		})
		if err == nil && board.gone {
			return fmt.Errorf("talosoperation %q was deleted while it was watched", board.name)
		}
		return err
	}
}

func first(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}
