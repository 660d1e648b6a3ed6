// SPDX-License-Identifier: Apache-2.0

// Package balancer forwards TCP connections to the healthy ones of some backends. It stands where a real installation
// has a load balancer: before the kube-apiservers, before etcd and before several ichor-apiservers. It never looks into
// what it carries.
package balancer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// dialTimeout bounds a connection to a backend, checkTimeout one health check.
	dialTimeout  = 2 * time.Second
	checkTimeout = 3 * time.Second
	// defaultInterval is the time between two rounds of health checks: each costs every backend a TLS handshake.
	defaultInterval = time.Second
	// failuresUntilDown is how many checks in a row must fail before a backend gets no more connections.
	failuresUntilDown = 3
	// parallelChecks bounds the checks that run at a time.
	parallelChecks = 32
	// maxConnections bounds what one balancer carries at a time.
	maxConnections = 4096
)

// Check tells whether a backend can take connections; nil means that it can.
type Check func(ctx context.Context, address string) error

// Policy says which healthy backend gets a connection.
type Policy int

const (
	// Spread goes round the healthy backends.
	Spread Policy = iota
	// FirstHealthy takes the first healthy one in the given order; the others are for when it fails.
	FirstHealthy
)

// Config is what a balancer is made of.
type Config struct {
	// Name appears in log lines.
	Name string
	// Backends are addresses (host:port) in the order of preference. Most may be down.
	Backends []string
	// Check is asked of every backend, again and again. Nil: a TCP connection succeeds.
	Check Check
	// Policy says which healthy backend gets a connection.
	Policy Policy
	// Interval is the time between two rounds of checks, 1 s if zero.
	Interval time.Duration
	// Drain leaves the connections of a backend that is down alone: it gets no new ones, and ends the others itself, as
	// behind kube-proxy. Without it they are cut.
	Drain bool
	// Logger is told when backends come and go.
	Logger *slog.Logger
}

// Balancer forwards connections until Close.
type Balancer struct {
	config   Config
	listener net.Listener
	cancel   context.CancelFunc
	group    sync.WaitGroup
	slots    chan struct{}

	mu       sync.Mutex
	backends []*backend
	next     int
}

// backend is guarded by the balancer's lock.
type backend struct {
	address     string
	healthy     bool
	failures    int
	connections map[net.Conn]struct{}
}

// Start serves on a listener, which it closes at its end.
func Start(listener net.Listener, config Config) *Balancer {
	if config.Interval == 0 {
		config.Interval = defaultInterval
	}
	if config.Check == nil {
		config.Check = TCP
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &Balancer{config: config, listener: listener, cancel: cancel, slots: make(chan struct{}, maxConnections)}
	for _, address := range config.Backends {
		b.backends = append(b.backends, &backend{address: address, connections: map[net.Conn]struct{}{}})
	}
	b.group.Go(func() { b.watch(ctx) })
	b.group.Go(func() { b.accept(ctx) })
	return b
}

// TCP is the check that a connection can be made.
func TCP(ctx context.Context, address string) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}

// Addr is where it listens.
func (b *Balancer) Addr() net.Addr { return b.listener.Addr() }

// Healthy are the backends that get connections now, in the given order.
func (b *Balancer) Healthy() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, x := range b.backends {
		if x.healthy {
			out = append(out, x.address)
		}
	}
	return out
}

// Close ends all connections and waits until everything has ended.
func (b *Balancer) Close() {
	b.cancel()
	_ = b.listener.Close() // it can be closed already; nothing depends on it
	b.mu.Lock()
	for _, x := range b.backends {
		x.cut()
	}
	b.mu.Unlock()
	b.group.Wait()
}

func (x *backend) cut() {
	for connection := range x.connections {
		_ = connection.Close() // the other side may have been faster
	}
}

// watch checks all backends in rounds.
func (b *Balancer) watch(ctx context.Context) {
	ticker := time.NewTicker(b.config.Interval)
	defer ticker.Stop()
	for {
		b.checkAll(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (b *Balancer) checkAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var group sync.WaitGroup
	places := make(chan struct{}, parallelChecks)
	for _, x := range b.backends {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			err := b.config.Check(ctx, x.address)
			if ctx.Err() == nil || err == nil {
				b.judge(x, err)
			} else if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				b.judge(x, fmt.Errorf("no answer in %s", checkTimeout))
			}
		})
	}
	group.Wait()
}

// judge takes the result of a check: one success is enough to come back, several failures to be cut off.
func (b *Balancer) judge(x *backend, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		if !x.healthy {
			b.config.Logger.Info("backend is up", "balancer", b.config.Name, "backend", x.address)
		}
		x.healthy, x.failures = true, 0
		return
	}
	x.failures++
	if x.healthy && x.failures >= failuresUntilDown {
		b.config.Logger.Warn("backend is down", "balancer", b.config.Name, "backend", x.address, "reason", err)
		x.healthy = false
		if !b.config.Drain {
			x.cut()
		}
	}
}

func (b *Balancer) accept(ctx context.Context) {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				b.config.Logger.Error("accept", "balancer", b.config.Name, "error", err)
			}
			return
		}
		select {
		case b.slots <- struct{}{}:
		default:
			b.config.Logger.Warn("too many connections, one is refused", "balancer", b.config.Name, "limit", maxConnections)
			_ = client.Close()
			continue
		}
		b.group.Go(func() {
			defer func() { <-b.slots }()
			b.carry(ctx, client)
		})
	}
}

// order are the healthy backends, the one to try first in front.
func (b *Balancer) order() []*backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	var healthy []*backend
	for _, x := range b.backends {
		if x.healthy {
			healthy = append(healthy, x)
		}
	}
	if b.config.Policy == FirstHealthy || len(healthy) == 0 {
		return healthy
	}
	b.next++
	first := b.next % len(healthy)
	return slices.Concat(healthy[first:], healthy[:first])
}

// carry connects a client with the first backend that takes it. A client that nobody takes is closed, as a load
// balancer without members does.
func (b *Balancer) carry(ctx context.Context, client net.Conn) {
	defer client.Close() //nolint:errcheck // the peer may have closed it
	dialer := &net.Dialer{Timeout: dialTimeout}
	for _, x := range b.order() {
		server, err := dialer.DialContext(ctx, "tcp", x.address)
		if err != nil {
			continue
		}
		b.join(ctx, x, client, server)
		return
	}
}

// join copies in both directions until either ends.
func (b *Balancer) join(ctx context.Context, x *backend, client, server net.Conn) {
	defer server.Close() //nolint:errcheck // the peer may have closed it
	b.mu.Lock()
	x.connections[server] = struct{}{}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(x.connections, server)
		b.mu.Unlock()
	}()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()

	var group sync.WaitGroup
	group.Go(func() { pump(server, client) })
	group.Go(func() { pump(client, server) })
	group.Wait()
}

// pump copies until the source ends, hands the end on, and makes sure that a broken side ends the other.
func pump(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite() // a side that is gone needs no notice
		return
	}
	_ = to.Close()
	_ = from.Close()
}
