// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc/stats"
)

// traffic counts what comes in over the node's API, so that a test can tell that nothing did.
type traffic struct {
	mu          sync.Mutex
	connections uint64
	bytes       uint64
	calls       map[string]Calls
	open        map[*countedConn]struct{}
}

func newTraffic() *traffic {
	return &traffic{calls: map[string]Calls{}, open: map[*countedConn]struct{}{}}
}

func (t *traffic) snapshot() (connections, bytes uint64, calls map[string]Calls) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.connections, t.bytes, maps.Clone(t.calls)
}

func (t *traffic) accepted(c net.Conn) net.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.connections++
	counted := &countedConn{Conn: c, traffic: t}
	t.open[counted] = struct{}{}
	return counted
}

// breakAll closes every connection without a word, as a pulled cable does.
func (t *traffic) breakAll() {
	t.mu.Lock()
	open := slices.Collect(maps.Keys(t.open))
	t.mu.Unlock()
	for _, c := range open {
		_ = c.Close() // whatever state it is in, it is gone
	}
}

type countedConn struct {
	net.Conn
	traffic *traffic
}

// Read implements net.Conn.
func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.traffic.mu.Lock()
	c.traffic.bytes += uint64(n)
	c.traffic.mu.Unlock()
	return n, err
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.traffic.mu.Lock()
	delete(c.traffic.open, c)
	c.traffic.mu.Unlock()
	return c.Conn.Close()
}

type methodKey struct{}

// TagRPC implements stats.Handler.
func (t *traffic) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls := t.calls[info.FullMethodName]
	calls.Count++
	t.calls[info.FullMethodName] = calls
	return context.WithValue(ctx, methodKey{}, info.FullMethodName)
}

// HandleRPC implements stats.Handler.
func (t *traffic) HandleRPC(ctx context.Context, s stats.RPCStats) {
	in, ok := s.(*stats.InPayload)
	if !ok {
		return
	}
	method, _ := ctx.Value(methodKey{}).(string)
	t.mu.Lock()
	defer t.mu.Unlock()
	calls := t.calls[method]
	calls.RequestBytes += uint64(in.Length)
	t.calls[method] = calls
}

// TagConn implements stats.Handler.
func (t *traffic) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (t *traffic) HandleConn(context.Context, stats.ConnStats) {}
