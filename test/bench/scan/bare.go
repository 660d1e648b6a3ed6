// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// bareTask is the task of the connect loop.
type bareTask struct {
	Network netip.Prefix
	// Timeout of a connection, as every scan needs one. 0 is none, which is the quickest that Go's net package can do.
	Timeout time.Duration
	Workers int
}

// bareResult is what the connect loop found.
type bareResult struct {
	Took time.Duration
	Open int64
}

// connectBare connects to every address of a network and hangs up: what no scan can do without.
func connectBare(ctx context.Context, task bareTask) (bareResult, error) {
	connect := connectWithin(ctx, task.Timeout)
	if task.Timeout == 0 {
		connect = connectForever
	}
	total := int64(1) << (task.Network.Addr().BitLen() - task.Network.Bits())
	var next, open atomic.Int64
	began := time.Now()
	var workers sync.WaitGroup
	for range task.Workers {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < total; i = next.Add(1) - 1 {
				conn, err := connect(target(task.Network, int(i)))
				if err == nil {
					open.Add(1)
					_ = conn.Close() // what it says is of no use
				}
			}
		})
	}
	workers.Wait()
	if err := ctx.Err(); err != nil {
		return bareResult{}, errors.New("the connect loop was interrupted")
	}
	return bareResult{time.Since(began), open.Load()}, nil
}

func connectWithin(ctx context.Context, timeout time.Duration) func(netip.AddrPort) (net.Conn, error) {
	dialer := net.Dialer{Timeout: timeout}
	return func(to netip.AddrPort) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", to.String()) }
}

func connectForever(to netip.AddrPort) (net.Conn, error) {
	conn, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(to))
	if err != nil {
		return nil, err
	}
	return conn, nil
}
