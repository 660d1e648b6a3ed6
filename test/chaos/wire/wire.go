// SPDX-License-Identifier: Apache-2.0

// Package wire carries TCP connections to one target and is the cable that a test cuts: it can fall silent, as a network
// that loses every packet, or break, as one whose other end resets every connection. It never looks into what it
// carries.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// dialTimeout bounds a connection to the target.
	dialTimeout = 5 * time.Second
	// maxConnections bounds what one wire carries at a time.
	maxConnections = 1024
	// chunk is how many bytes are carried at a time.
	chunk = 32 << 10
)

// State is what a wire does.
type State int

const (
	// Whole carries everything.
	Whole State = iota
	// Silent keeps connections and carries nothing; what was sent arrives when the wire is whole again.
	Silent
	// Broken resets every connection, new ones too.
	Broken
)

// Wire carries connections until Close.
type Wire struct {
	target   string
	listener net.Listener
	group    sync.WaitGroup
	ctx      context.Context
	cancel   context.CancelFunc

	mu          sync.Mutex
	state       State
	heard       chan struct{} // closed while the wire isn't silent
	connections map[net.Conn]struct{}
}

// Start begins to carry connections from a free port of 127.0.0.1 to the target (host:port).
func Start(target string) (*Wire, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for a wire to %s: %w", target, err)
	}
	w := &Wire{target: target, listener: listener, heard: make(chan struct{}), connections: map[net.Conn]struct{}{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	close(w.heard)
	w.group.Go(w.accept)
	return w, nil
}

// Addr is where the near end is (host:port).
func (w *Wire) Addr() string { return w.listener.Addr().String() }

// Set changes what the wire does.
func (w *Wire) Set(state State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if (w.state == Silent) != (state == Silent) {
		if state == Silent {
			w.heard = make(chan struct{})
		} else {
			close(w.heard)
		}
	}
	w.state = state
	if state == Broken {
		w.reset()
	}
}

// reset ends all connections as a host does that knows nothing of them. The lock is held.
func (w *Wire) reset() {
	for connection := range w.connections {
		abort(connection)
	}
}

func abort(connection net.Conn) {
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the connection may have ended
	}
	_ = connection.Close()
}

// Close ends all connections and waits until everything has ended.
func (w *Wire) Close() {
	w.cancel()
	_ = w.listener.Close() // nothing depends on it any more
	w.mu.Lock()
	w.reset()
	w.mu.Unlock()
	w.group.Wait()
}

func (w *Wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		if !w.keep(near) {
			abort(near)
			continue
		}
		w.group.Go(func() {
			defer w.drop(near)
			w.carry(near)
		})
	}
}

// keep notes a connection, unless the wire is broken or full.
func (w *Wire) keep(connection net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == Broken || w.ctx.Err() != nil || len(w.connections) >= 2*maxConnections {
		return false
	}
	w.connections[connection] = struct{}{}
	return true
}

func (w *Wire) drop(connection net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.connections, connection)
	_ = connection.Close() // it may have been reset
}

// listen waits until the wire isn't silent.
func (w *Wire) listen() error {
	for {
		w.mu.Lock()
		heard, silent := w.heard, w.state == Silent
		w.mu.Unlock()
		if !silent {
			return nil
		}
		select {
		case <-heard:
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
	}
}

// carry connects the near end with the target until either side ends.
func (w *Wire) carry(near net.Conn) {
	if w.listen() != nil {
		return
	}
	far, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(w.ctx, "tcp", w.target)
	if err != nil {
		abort(near)
		return
	}
	if !w.keep(far) {
		abort(far)
		abort(near)
		return
	}
	defer w.drop(far)
	var group sync.WaitGroup
	group.Go(func() { w.pump(far, near) })
	group.Go(func() { w.pump(near, far) })
	group.Wait()
}

// pump carries one direction. The end of one side is the end of that direction; a fault ends both.
func (w *Wire) pump(to, from net.Conn) {
	buffer := make([]byte, chunk)
	for {
		n, err := from.Read(buffer)
		if heard := w.listen(); heard != nil {
			abort(to)
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				abort(from)
				return
			}
		}
		if err == nil {
			continue
		}
		if half, ok := to.(interface{ CloseWrite() error }); ok && errors.Is(err, io.EOF) {
			_ = half.CloseWrite() // a side that is gone needs no notice
			return
		}
		abort(to)
		abort(from)
		return
	}
}
