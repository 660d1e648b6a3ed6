// SPDX-License-Identifier: Apache-2.0

package secretsbundle

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// recentFor is how long a bundle that was read is taken for what the Secret holds.
const recentFor = 10 * time.Second

// Recent reads bundles for those who ask many times a second: a fleet's machines are rendered from one. What was read a
// moment ago isn't read again. Failures are not kept, and the hash that the cluster remembers is asked for each time.
type Recent struct {
	Store Store
	Clock clock.PassiveClock

	mu   sync.Mutex
	read map[v1alpha1.SecretReference]recent
}

type recent struct {
	bundle *Bundle
	until  time.Time
}

// LoadFor is Store.LoadFor.
func (r *Recent) LoadFor(ctx context.Context, cluster *v1alpha1.TalosCluster) (*Bundle, error) {
	now, ref := r.Clock.Now(), cluster.Spec.SecretsRef
	// One that isn't the cluster's any more may have been replaced since it was read: the Secret tells.
	if bundle := r.lookup(ref, now); bundle != nil && checkHash(cluster, bundle) == nil {
		return bundle, nil
	}
	// Not under the lock: two callers may read at once, which costs a request and nothing else.
	bundle, err := r.Store.LoadFor(ctx, cluster)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read == nil {
		r.read = map[v1alpha1.SecretReference]recent{}
	}
	r.read[ref] = recent{bundle, now.Add(recentFor)}
	return bundle, nil
}

func (r *Recent) lookup(ref v1alpha1.SecretReference, now time.Time) *Bundle {
	r.mu.Lock()
	defer r.mu.Unlock()
	have, known := r.read[ref]
	if !known || now.After(have.until) {
		delete(r.read, ref)
		return nil
	}
	return have.bundle
}
