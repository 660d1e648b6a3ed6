// SPDX-License-Identifier: Apache-2.0

package secretsbundle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/role"
	"k8s.io/utils/clock"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// Provider issues the controller's own credentials for the nodes of its clusters. They are kept in memory and issued
// again, from the bundle as it is then, after half of their life; so a controller that slept for a week needs nothing.
type Provider struct {
	store   Store
	cluster func(name string) (*v1alpha1.TalosCluster, error)
	clock   clock.PassiveClock
	as      role.Role

	mu     sync.Mutex
	issued map[string]issued
}

type issued struct {
	credentials talos.Credentials
	renewAt     time.Time
	hash        string
}

// NewProvider makes a provider. cluster finds a TalosCluster by name, usually in a cache.
func NewProvider(store Store, cluster func(name string) (*v1alpha1.TalosCluster, error), clock clock.PassiveClock) *Provider {
	return NewProviderAs(role.Admin, store, cluster, clock)
}

// NewProviderAs makes a provider of certificates with another role than os:admin.
func NewProviderAs(as role.Role, store Store, cluster func(name string) (*v1alpha1.TalosCluster, error), clock clock.PassiveClock) *Provider {
	return &Provider{store: store, cluster: cluster, clock: clock, as: as, issued: map[string]issued{}}
}

// CredentialsFor gives a client certificate for the nodes of a cluster. Errors are those of Store.LoadFor.
func (p *Provider) CredentialsFor(ctx context.Context, clusterName string) (talos.Credentials, error) {
	cluster, err := p.cluster(clusterName)
	if err != nil {
		return talos.Credentials{}, fmt.Errorf("find cluster %s: %w", clusterName, err)
	}
	now := p.clock.Now()
	known := cluster.Status.SecretsBundleHash
	if have, ok := p.lookup(clusterName); ok && now.Before(have.renewAt) && (known == "" || known == have.hash) {
		return have.credentials, nil
	}
	// Not under the lock: two callers may issue at once, which costs a certificate and nothing else.
	bundle, err := p.store.LoadFor(ctx, cluster)
	if err != nil {
		return talos.Credentials{}, err
	}
	credentials, err := bundle.Credentials(now, p.as, CredentialsTTL)
	if err != nil {
		return talos.Credentials{}, err
	}
	p.keep(clusterName, issued{credentials: credentials, renewAt: now.Add(CredentialsTTL / 2), hash: bundle.Hash()})
	return credentials, nil
}

func (p *Provider) lookup(name string) (issued, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	have, ok := p.issued[name]
	return have, ok
}

func (p *Provider) keep(name string, value issued) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.issued[name] = value
}
