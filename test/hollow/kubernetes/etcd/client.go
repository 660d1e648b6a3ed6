// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"maesh.dev/ichor/test/hollow/kubernetes/pki"
)

const (
	// healthEvery paces the health checks and healthTimeout bounds one (Talos: 20 s and 15 s; here a person waits).
	healthEvery   = time.Second
	healthTimeout = 5 * time.Second
)

// errNoEndpoints is Talos' answer when discovery has found no control plane yet.
var errNoEndpoints = errors.New("no controlplane endpoints discovered yet")

// dial makes a client of the given members. It doesn't wait for a connection: calls do, until their context ends.
func (m *Member) dial(ctx context.Context, addresses ...netip.Addr) (*clientv3.Client, error) {
	tlsConfig, err := pki.EtcdClientTLS(m.options.CA)
	if err != nil {
		return nil, err
	}

	endpoints := make([]string, len(addresses))
	for i, address := range addresses {
		endpoints[i] = net.JoinHostPort(address.String(), strconv.Itoa(clientPort))
	}

	client, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: endpoints, TLS: tlsConfig, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("error building etcd client: %w", err)
	}

	return client, nil
}

// dialLocal makes a client of this member only.
func (m *Member) dialLocal(ctx context.Context) (*clientv3.Client, error) {
	return m.dial(ctx, m.options.Address)
}

// dialCluster makes a client of every known member.
func (m *Member) dialCluster(ctx context.Context) (*clientv3.Client, error) {
	endpoints := m.options.Endpoints()
	if len(endpoints) == 0 {
		return nil, errNoEndpoints
	}

	// A random order spreads the load and finds a living member sooner when some are down.
	rand.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })

	return m.dial(ctx, endpoints...)
}

// others are the addresses of the other control planes.
func (m *Member) others() []netip.Addr {
	var others []netip.Addr

	for _, address := range m.options.Endpoints() {
		if address != m.options.Address {
			others = append(others, address)
		}
	}

	return others
}

// watchHealth checks the member until ctx ends: it is healthy when a read that needs the quorum succeeds, so a learner
// isn't.
func (m *Member) watchHealth(ctx context.Context) {
	client, err := m.dialLocal(ctx)
	if err != nil {
		m.update(func(s *State) { s.Unknown, s.Message = false, fmt.Sprintf("Health check failed: %v", err) })

		return
	}

	defer client.Close() //nolint:errcheck // nothing was written

	ticker := time.NewTicker(healthEvery)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}

		m.checkHealth(ctx, client)
	}
}

func (m *Member) checkHealth(ctx context.Context, client *clientv3.Client) {
	checkCtx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()

	if m.State().MemberID == 0 {
		if local, err := client.Status(checkCtx, client.Endpoints()[0]); err == nil {
			m.update(func(s *State) { s.MemberID = local.Header.GetMemberId() })
		}
	}

	_, err := client.Get(checkCtx, "health")
	if ctx.Err() != nil {
		return
	}

	m.update(func(s *State) {
		if s.Phase != PhaseRunning {
			return
		}

		s.Unknown = false
		s.Healthy = err == nil

		if err == nil {
			s.Message = "Health check successful"
		} else {
			s.Message = fmt.Sprintf("Health check failed: %v", err)
		}
	})
}
