// SPDX-License-Identifier: Apache-2.0

// Package control is the socket through which a person or a test tells a running hollow process to switch machines off,
// wipe them or make them misbehave. It is for the machine room, so to speak: nothing of it can be seen from the Talos API.
//
// It speaks HTTP. GET /status shows all machines, GET /status/NAME and GET /applies/NAME one; every other command is
// POST /COMMAND/NAME?arg=…&arg=…. An answer is JSON, an error a line of text with a fitting status code.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"maesh.dev/ichor/test/hollow/host"
	"maesh.dev/ichor/test/hollow/node"
)

const (
	// readLimit bounds the time to read a request, answerLimit the whole exchange: a power cut waits for every child to end.
	readLimit   = 10 * time.Second
	answerLimit = 2 * time.Minute
	// headerLimit bounds the bytes of a request's head, and with it the arguments.
	headerLimit = 64 << 10
	// closeLimit bounds the wait for exchanges in progress before their connections are cut.
	closeLimit = 10 * time.Second
	// pathLimit is the longest path of a socket that Linux takes (sun_path, with its final zero byte).
	pathLimit = 107
)

// Listen opens the socket, for its owner only, in place of one that a dead process left. Closing it removes the file.
func Listen(path string) (net.Listener, error) {
	if len(path) > pathLimit {
		return nil, fmt.Errorf("control socket %s: the path has %d bytes, at most %d are possible; choose a shorter one", path, len(path), pathLimit)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), listener.Close())
	}
	return listener, nil
}

// removeStale removes a socket that nobody listens on, and nothing else.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("control socket %s: the file exists and is no socket; remove it or choose another path", path)
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

// Server answers on the socket.
type Server struct {
	http *http.Server
	// done is closed when the server took its last connection; served says why and may be read afterwards.
	done   chan struct{}
	served error

	mu     sync.Mutex
	closed bool
	// commands counts those in progress; it grows only while closed is false.
	commands sync.WaitGroup
}

// Serve answers for the machines of a host until Close. The listener is the server's from now on.
func Serve(listener net.Listener, h *host.Host) *Server {
	s := &Server{done: make(chan struct{})}
	routes := Handler(h)
	s.http = &http.Server{
		ReadTimeout: readLimit, WriteTimeout: answerLimit, MaxHeaderBytes: headerLimit,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !s.enter() {
				http.Error(w, "the machines are being ended", http.StatusServiceUnavailable)
				return
			}
			defer s.commands.Done()
			routes.ServeHTTP(w, r)
		}),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.served = fmt.Errorf("control socket: %w", err)
		}
	}()
	return s
}

func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.commands.Add(1)
	return true
}

// Close removes the socket and waits for the commands in progress, so that none switches a machine on afterwards.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("control socket: wait for commands in progress: %w", err), s.http.Close())
	}
	s.commands.Wait()
	<-s.done
	return errors.Join(err, s.served)
}

// Handler answers for the machines of a host.
func Handler(h *host.Host) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/status", func(w http.ResponseWriter, r *http.Request) {
		if allowed(w, r, "status", http.MethodGet) {
			answer(w, all(h))
		}
	})
	mux.HandleFunc("/{command}/{machine}", func(w http.ResponseWriter, r *http.Request) { one(h, w, r) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, fmt.Sprintf("%s %s: no such path; GET /status, or /COMMAND/MACHINE with a command of\n%s", r.Method, r.URL.Path, Usage()), http.StatusNotFound)
	})
	return mux
}

func all(h *host.Host) []node.Status {
	list := []node.Status{}
	for _, name := range h.Names() {
		if n, err := h.Node(name); err == nil { // a host never loses a machine
			list = append(list, n.Status())
		}
	}
	return list
}

// one runs a command for one machine.
func one(h *host.Host, w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("command")
	c, ok := commands[name]
	if !ok {
		http.Error(w, fmt.Sprintf("%q: no such command; there are\n%s", name, Usage()), http.StatusNotFound)
		return
	}
	method := http.MethodPost
	if c.read {
		method = http.MethodGet
	}
	if !allowed(w, r, name, method) {
		return
	}
	n, err := h.Node(r.PathValue("machine"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	args := r.URL.Query()["arg"]
	if len(args) != len(c.args) {
		http.Error(w, fmt.Sprintf("%s takes the arguments %q; there are %d", name, c.args, len(args)), http.StatusBadRequest)
		return
	}
	result, err := c.run(n, args)
	switch {
	case errors.Is(err, errArgument):
		http.Error(w, fmt.Sprintf("%s: %v", name, err), http.StatusBadRequest)
	case err != nil:
		http.Error(w, fmt.Sprintf("%s: %v", name, err), http.StatusInternalServerError)
	default:
		answer(w, result)
	}
}

// allowed tells whether the method is the one that a command wants; if not it says so.
func allowed(w http.ResponseWriter, r *http.Request, name, method string) bool {
	if r.Method == method {
		return true
	}
	w.Header().Set("Allow", method)
	http.Error(w, fmt.Sprintf("%s: use %s instead of %s", name, method, r.Method), http.StatusMethodNotAllowed)
	return false
}

// answer sends a result; without one an empty object.
func answer(w http.ResponseWriter, result any) {
	if result == nil {
		result = struct{}{}
	}
	data, err := json.Marshal(result)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(data, '\n')) // a client that left does not read it
}
