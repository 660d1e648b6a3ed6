// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// errReadBudget ends a connection whose peer sent more than it was allowed to.
var errReadBudget = errors.New("the peer sent more than it may")

// wire is an established connection under the gRPC transport. It counts what was written, which tells whether a request
// can have reached the peer; it bounds what is read over its life; and it keeps the first read error, which holds the
// TLS alert that gRPC swallows.
type wire struct {
	net.Conn
	wrote  atomic.Int64
	budget atomic.Int64 // bytes that may still be read

	mu      sync.Mutex
	pending []byte // read before the transport took over
	err     error
}

func newWire(conn net.Conn, pending []byte, budget int64) *wire {
	w := &wire{Conn: conn, pending: pending}
	w.budget.Store(budget)
	return w
}

func (w *wire) Read(p []byte) (int, error) {
	if n := w.takePending(p); n > 0 {
		return n, nil
	}
	left := w.budget.Load()
	if left <= 0 {
		w.keep(errReadBudget)
		return 0, errReadBudget
	}
	n, err := w.Conn.Read(p[:min(int64(len(p)), left)])
	w.budget.Add(int64(-n))
	if err != nil {
		w.keep(err)
	}
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	w.wrote.Add(int64(len(p))) // counted first: the peer may answer before Write returns
	n, err := w.Conn.Write(p)
	w.wrote.Add(int64(n - len(p)))
	return n, err
}

// readError is the first error that reading met.
func (w *wire) readError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *wire) takePending(p []byte) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := copy(p, w.pending)
	w.pending = w.pending[n:]
	return n
}

func (w *wire) keep(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}
