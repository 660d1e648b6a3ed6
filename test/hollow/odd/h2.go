// SPDX-License-Identifier: Apache-2.0

package odd

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthserver "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// lookalike is the name in the certificate of a Talos machine in maintenance mode, which anybody can put into his.
const lookalike = constants.MaintenanceServiceCommonName

// GRPC is a gRPC server over TLS that has the health service and nothing of Talos.
func GRPC(address netip.AddrPort) (io.Closer, error) { return serveGRPC(address, stranger) }

// Lookalike is that server with a certificate as a Talos machine in maintenance mode has.
func Lookalike(address netip.AddrPort) (io.Closer, error) { return serveGRPC(address, lookalike) }

func serveGRPC(address netip.AddrPort, name string) (io.Closer, error) {
	config, err := serving(address.Addr(), name)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address.String())
	if err != nil {
		return nil, fmt.Errorf("odd server: %w", err)
	}
	s := &grpcServer{}
	s.server = grpc.NewServer(grpc.WaitForHandlers(true), grpc.Creds(credentials.NewTLS(config)))
	grpc_health_v1.RegisterHealthServer(s.server, healthserver.NewServer())
	s.serving.Go(func() { s.err = s.server.Serve(listener) })
	return s, nil
}

type grpcServer struct {
	server  *grpc.Server
	serving sync.WaitGroup
	err     error
}

// Close implements io.Closer.
func (s *grpcServer) Close() error {
	s.server.Stop()
	s.serving.Wait()
	if errors.Is(s.err, grpc.ErrServerStopped) {
		return nil
	}
	return s.err
}

// HTTPS is a web server that speaks HTTP/2.
func HTTPS(address netip.AddrPort) (io.Closer, error) {
	return serveHTTP(address, stranger, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such page", http.StatusNotFound) })
}

// GRPCFlood answers each call with a message of 64 MiB.
func GRPCFlood(address netip.AddrPort) (io.Closer, error) {
	return serveHTTP(address, stranger, floodCall)
}

// LookalikeFlood does so with a certificate as a Talos machine in maintenance mode has.
func LookalikeFlood(address netip.AddrPort) (io.Closer, error) {
	return serveHTTP(address, lookalike, floodCall)
}

// LookalikeHang has such a certificate too, and never answers a call.
func LookalikeHang(address netip.AddrPort) (io.Closer, error) {
	return serveHTTP(address, lookalike, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
}

// floodCall is the answer of a gRPC server: one message that is announced with its size, and comes in small pieces.
func floodCall(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/grpc")
	head := make([]byte, 5)
	binary.BigEndian.PutUint32(head[1:], floodSize)
	if _, err := w.Write(head); err == nil {
		_ = flood(w) // the peer has left
	}
}

// serveHTTP is a web server with HTTP/2 alone.
func serveHTTP(address netip.AddrPort, name string, handle http.HandlerFunc) (io.Closer, error) {
	config, err := serving(address.Addr(), name)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address.String())
	if err != nil {
		return nil, fmt.Errorf("odd server: %w", err)
	}
	s := &httpServer{}
	s.server = &http.Server{
		ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: patience, ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if s.begin() {
				defer s.handlers.Done()
				handle(w, r)
			}
		}),
	}
	s.serving.Go(func() { s.err = s.server.Serve(tls.NewListener(listener, config)) })
	return s, nil
}

type httpServer struct {
	server  *http.Server
	serving sync.WaitGroup
	err     error

	mu       sync.Mutex
	closed   bool
	handlers sync.WaitGroup
}

// begin counts a call, unless the server is being closed.
func (s *httpServer) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.handlers.Add(1)
	}
	return !s.closed
}

// Close implements io.Closer.
func (s *httpServer) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.server.Close()
	s.serving.Wait()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.handlers.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		err = errors.Join(err, errors.New("odd server: a call doesn't end with its connection"))
	}
	if errors.Is(s.err, http.ErrServerClosed) {
		return err
	}
	return errors.Join(err, s.err)
}
