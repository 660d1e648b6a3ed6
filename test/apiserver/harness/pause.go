// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// PausableEtcd is the way to the storage through a proxy that can be paused, as if etcd's process were stopped: what is
// sent arrives later, and no connection breaks.
type PausableEtcd struct {
	// Endpoint is the URL for clients.
	Endpoint string

	mu     sync.Mutex
	paused chan struct{} // closed when it goes on; nil if it does
}

// PausableEtcd starts a proxy before the environment's storage, which ends with the test.
func (e *Env) PausableEtcd(t testing.TB) *PausableEtcd {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "etcd.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	p := &PausableEtcd{Endpoint: "unix://" + socket}
	target := strings.TrimPrefix(sharedEtcd(t).Endpoint, "unix://")
	var running sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", target)
			if err != nil {
				client.Close()
				continue
			}
			mu.Lock()
			open = append(open, client, server)
			mu.Unlock()
			running.Go(func() { p.copy(server, client) })
			running.Go(func() { p.copy(client, server) })
		}
	})
	t.Cleanup(func() {
		p.Resume()
		listener.Close()
		mu.Lock()
		for _, connection := range open {
			connection.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return p
}

// copy passes bytes on until one side closes, and waits while it is paused.
func (p *PausableEtcd) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.wait()
		if _, writeErr := to.Write(buffer[:n]); writeErr != nil || err != nil && err != io.EOF {
			return
		}
		if err == io.EOF {
			return
		}
	}
}

func (p *PausableEtcd) wait() {
	p.mu.Lock()
	paused := p.paused
	p.mu.Unlock()
	if paused != nil {
		<-paused
	}
}

// Pause stops passing on.
func (p *PausableEtcd) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused == nil {
		p.paused = make(chan struct{})
	}
}

// Resume goes on.
func (p *PausableEtcd) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused != nil {
		close(p.paused)
		p.paused = nil
	}
}
