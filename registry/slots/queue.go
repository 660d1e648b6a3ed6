// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"
	"hash/maphash"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// lanes is how many clusters' changes may be on their way at a time where no two share a lane.
const lanes = 16

// queued is a Store whose changes of one cluster wait for each other within the process. Without it each change that
// succeeds makes all others on their way conflict, and fifty claims cost more than a thousand compare-and-swaps. Nothing
// relies on it: changes of other processes are in nobody's queue, and the compare-and-swap is what decides.
type queued struct {
	Store
	seed  maphash.Seed
	lanes [lanes]chan struct{}
}

// Queue returns the store with the queue before its changes of clusters.
func Queue(store Store) Store {
	q := &queued{Store: store, seed: maphash.MakeSeed()}
	for i := range q.lanes {
		q.lanes[i] = make(chan struct{}, 1)
	}
	return q
}

// UpdateCluster changes a cluster once those before it in the queue have.
func (q *queued) UpdateCluster(ctx context.Context, name string, change func(*ichor.TalosCluster) error) error {
	lane := q.lanes[maphash.String(q.seed, name)%lanes]
	select {
	case lane <- struct{}{}:
		defer func() { <-lane }()
		return q.Store.UpdateCluster(ctx, name, change)
	case <-ctx.Done():
		return ctx.Err()
	}
}
