// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"maesh.dev/ichor/controllers/operation/operationtest"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// followDeeds observes every state of every operation of the stack until the test ends, also over times in which the API is
// away.
func (s *suite) followDeeds(t *testing.T) {
	t.Helper()
	s.journals = &operationtest.Deeds{}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			s.followOnce(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// followOnce observes operations from what there is on. What was missed before isn't judged.
func (s *suite) followOnce(ctx context.Context) {
	operations := s.admin.IchorV1alpha1().TalosOperations()
	listing, cancel := context.WithTimeout(ctx, 30*time.Second)
	list, err := operations.List(listing, metav1.ListOptions{})
	cancel()
	if err != nil {
		return // the API is away; it is asked again
	}
	for i := range list.Items {
		s.journals.Forget(list.Items[i].UID)
		s.journals.Observe(&list.Items[i])
	}
	watcher, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return operations.Watch(ctx, options)
		},
	})
	if err != nil {
		return // likewise
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if operation, is := runtime.Object(event.Object).(*v1alpha1.TalosOperation); is && event.Type != watch.Deleted {
			s.journals.Observe(operation)
		}
	}
}

// planEqualsDeed fails if an operation did anything that its plan doesn't say, or left anything out, without a word of it in
// its status.
func (s *suite) planEqualsDeed(t *testing.T) {
	t.Helper()
	list, err := s.admin.IchorV1alpha1().TalosOperations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return // a story may end with the API away
	}
	eventually(t, time.Minute, func() error {
		for i := range list.Items {
			one := &list.Items[i]
			if seen := s.journals.Phase(one.UID); isOver(one) && seen != one.Status.Phase {
				return fmt.Errorf("operation %s was observed as %s, and is %s", one.Name, seen, one.Status.Phase)
			}
		}
		return nil
	})
	if err := s.journals.Err(); err != nil {
		t.Errorf("what was done isn't what was planned, and isn't explained: %v", err)
	}
}

func isOver(operation *v1alpha1.TalosOperation) bool {
	switch operation.Status.Phase {
	case v1alpha1.OperationSucceeded, v1alpha1.OperationFailed, v1alpha1.OperationCancelled:
		return true
	default:
		return false
	}
}
