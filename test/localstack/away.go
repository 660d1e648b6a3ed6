// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"context"
	"net/netip"
	"sync"
)

// StopAPIServers ends every ichor-apiserver, and none is started again.
func (s *Stack) StopAPIServers(ctx context.Context) {
	var group sync.WaitGroup
	for _, c := range s.apiServers {
		group.Go(func() { c.stop(ctx) })
	}
	group.Wait()
}

// StartAPIServers starts those that StopAPIServers has ended, and waits until they are ready.
func (s *Stack) StartAPIServers(ctx context.Context) error {
	check := s.apiServerCheck()
	for n := range s.apiServers {
		address := netip.AddrPortFrom(s.replicaAddress(n), apiServerPort)
		s.apiServers[n] = s.start(apiServerName(n), "ichor-apiserver", s.apiServerArgs(n, address)...)
	}
	for n, c := range s.apiServers {
		address := netip.AddrPortFrom(s.replicaAddress(n), apiServerPort).String()
		if err := c.wait(ctx, func(ctx context.Context) error { return check(ctx, address) }); err != nil {
			return err
		}
	}
	return nil
}
