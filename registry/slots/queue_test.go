// SPDX-License-Identifier: Apache-2.0

package slots_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/registry/slots"
)

// slowStore takes a second for each change and remembers how many were on their way together.
type slowStore struct {
	slots.Store
	running, most, changes atomic.Int32
}

func (s *slowStore) UpdateCluster(_ context.Context, _ string, change func(*ichor.TalosCluster) error) error {
	s.most.Store(max(s.most.Load(), s.running.Add(1)))
	defer s.running.Add(-1)
	timer := time.NewTimer(time.Second)
	<-timer.C
	s.changes.Add(1)
	return change(&ichor.TalosCluster{})
}

func TestChangesOfOneClusterWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{}
		queue := slots.Queue(store)
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				if err := queue.UpdateCluster(t.Context(), "prod", func(*ichor.TalosCluster) error { return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if store.most.Load() != 1 || store.changes.Load() != 20 {
			t.Errorf("%d changes, %d of them together; want 20, one at a time", store.changes.Load(), store.most.Load())
		}
	})
}

func TestWhoGivesUpLeavesTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{}
		queue := slots.Queue(store)
		broken := errors.New("broken")
		var group sync.WaitGroup
		group.Go(func() {
			if err := queue.UpdateCluster(t.Context(), "prod", func(*ichor.TalosCluster) error { return broken }); !errors.Is(err, broken) {
				t.Errorf("want the change's error, got %v", err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := queue.UpdateCluster(ctx, "prod", func(*ichor.TalosCluster) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("want the context's error, got %v", err)
		}
		group.Wait()
		if err := queue.UpdateCluster(t.Context(), "prod", func(*ichor.TalosCluster) error { return nil }); err != nil || store.changes.Load() != 2 {
			t.Errorf("after an error the queue goes on: %d changes, %v", store.changes.Load(), err)
		}
	})
}
