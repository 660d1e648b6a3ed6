// SPDX-License-Identifier: Apache-2.0

// Package control is the socket through which a person or a test tells a running hollow process to switch machines off,
// wipe them or make them misbehave. It is for the machine room, so to speak: nothing of it can be seen from the Talos API.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"maesh.dev/ichor/test/hollow/host"
)

const (
	// requestLimit bounds what one request may be.
	requestLimit = 64 << 10
	// deadline bounds one exchange; a power cut waits for every child to end.
	deadline = 2 * time.Minute
)

// Request is one command for one machine; without a machine it is for all (status only).
type Request struct {
	Machine string   `json:"machine,omitempty"`
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
}

// Reply is the answer: a result or an error.
type Reply struct {
	Error  string          `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Server answers on the socket.
type Server struct {
	host     *host.Host
	listener net.Listener
	work     sync.WaitGroup
	cancel   context.CancelFunc
}

// Listen opens the socket, readable by its owner only, in place of one that a dead process left.
func Listen(path string, h *host.Host) (*Server, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), listener.Close())
	}
	s := &Server{host: h, listener: listener, cancel: cancel}
	s.work.Add(1)
	go s.accept(ctx)
	return s, nil
}

// removeStale removes a socket that nobody listens on.
func removeStale(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return errors.Join(fmt.Errorf("control socket %s: another process answers on it; end that first", path), c.Close())
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	return nil
}

func (s *Server) accept(ctx context.Context) {
	defer s.work.Done()
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.work.Add(1)
		go func() {
			defer s.work.Done()
			s.serve(ctx, c)
		}()
	}
}

// serve answers one request per connection.
func (s *Server) serve(ctx context.Context, c net.Conn) {
	defer c.Close() //nolint:errcheck // the answer is out, or nobody wants it
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		return
	}
	var request Request
	reply := Reply{}
	if err := json.NewDecoder(&limited{c, requestLimit}).Decode(&request); err != nil {
		reply.Error = fmt.Sprintf("read the request: %v", err)
	} else if result, err := s.do(request); err != nil {
		reply.Error = err.Error()
	} else if reply.Result, err = json.Marshal(result); err != nil {
		reply.Error = err.Error()
	}
	_ = json.NewEncoder(c).Encode(reply) // a client that left does not read it
}

// limited ends a read that is too long.
type limited struct {
	net.Conn
	left int
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("more than %d bytes", requestLimit)
	}
	n, err := l.Conn.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// Close ends the server and waits for what it does.
func (s *Server) Close() error {
	s.cancel()
	err := s.listener.Close()
	s.work.Wait()
	return err
}

// Call sends one request to the socket of a running process and unpacks the result into out, which may be nil.
func Call(ctx context.Context, path string, request Request, out any) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("control socket %s: %w; is `hollow run` running with this state folder?", path, err)
	}
	defer c.Close() //nolint:errcheck // nothing more is read
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	if err := json.NewEncoder(c).Encode(request); err != nil {
		return fmt.Errorf("control socket: send: %w", err)
	}
	var reply Reply
	if err := json.NewDecoder(c).Decode(&reply); err != nil {
		return fmt.Errorf("control socket: read the answer: %w", err)
	}
	if reply.Error != "" {
		return errors.New(reply.Error)
	}
	if out == nil || len(reply.Result) == 0 {
		return nil
	}
	return json.Unmarshal(reply.Result, out)
}
