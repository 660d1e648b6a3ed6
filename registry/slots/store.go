// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// Store is what the protocol needs of storage: reads from a quorum, and compare-and-swap on one key at a time. An object
// that isn't there is an error that k8s.io/apimachinery/pkg/api/errors.IsNotFound recognises.
type Store interface {
	// Cluster reads a cluster; never from a cache.
	Cluster(ctx context.Context, name string) (*ichor.TalosCluster, error)
	// Machine reads a machine; never from a cache.
	Machine(ctx context.Context, name string) (*ichor.TalosMachine, error)
	// UpdateCluster changes a cluster by compare-and-swap. It calls change with a copy of the newest version, again for
	// each version that another writer put in between; an error of change ends it and is returned as it is.
	UpdateCluster(ctx context.Context, name string, change func(*ichor.TalosCluster) error) error
	// UpdateMachine changes a machine in the same way.
	UpdateMachine(ctx context.Context, name string, change func(*ichor.TalosMachine) error) error
}
