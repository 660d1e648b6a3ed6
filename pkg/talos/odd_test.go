// SPDX-License-Identifier: Apache-2.0

package talos_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"
)

// floodSize is far more than any reader may take.
const floodSize = 64 << 20

// serve runs a server that treats each connection with handle, until the test ends.
func serve(t *testing.T, handle func(net.Conn)) uint16 {
	t.Helper()
	listener := listen(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			all.Go(func() {
				defer conn.Close()
				handle(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return portOf(listener)
}

// say sends a text and then reads until the other side is done.
func say(text string) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, text)
		_, _ = io.Copy(io.Discard, conn)
	}
}

// hang never answers.
func hang(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// flood sends 64 MiB, or as much as the other side takes.
func flood(conn net.Conn) {
	chunk := bytes.Repeat([]byte("flood "), 10_000)
	for sent := 0; sent < floodSize; sent += len(chunk) {
		if _, err := conn.Write(chunk); err != nil {
			return
		}
	}
}

// overTLS13 completes a handshake that agrees to HTTP/2 and then treats the connection with handle.
func overTLS13(certificate tls.Certificate, protocols []string, handle func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		secure := tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, NextProtos: protocols})
		if err := secure.Handshake(); err != nil {
			return
		}
		handle(secure)
	}
}

// serveHTTP runs a web server, with TLS if config is given.
func serveHTTP(t *testing.T, config *tls.Config) uint16 {
	t.Helper()
	listener := listen(t)
	port := portOf(listener)
	web := &http.Server{TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: 30 * time.Second, Handler: http.NotFoundHandler()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if config != nil {
			_ = web.ServeTLS(listener, "", "")
			return
		}
		_ = web.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = web.Close()
		<-done
	})
	return port
}

// otherService is a gRPC server with another service than Talos'.
func otherService(t *testing.T, certificate tls.Certificate) uint16 {
	t.Helper()
	other := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"},
	})))
	healthapi.RegisterHealthServer(other, healthapi.UnimplementedHealthServer{})
	return serveGRPC(t, other, nil)
}

// floodingService answers every call with a message of 64 MiB.
func floodingService(t *testing.T, certificate tls.Certificate) uint16 {
	t.Helper()
	service := grpc.NewServer(grpc.MaxSendMsgSize(2*floodSize), grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"},
	})), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		return stream.SendMsg(&healthapi.HealthCheckRequest{Service: string(bytes.Repeat([]byte{'x'}, floodSize))})
	}))
	return serveGRPC(t, service, nil)
}

// refusedPort is a port where nothing listens.
func refusedPort(t *testing.T) uint16 {
	t.Helper()
	listener := listen(t)
	defer listener.Close()
	return portOf(listener)
}

// cancelled is a context that has ended.
func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// countingListener counts connections and closes them all when closeOn is closed.
type countingListener struct {
	net.Listener
	accepted *atomic.Int64
	closeOn  chan struct{}
}

func (l *countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.accepted.Add(1)
	closing := &closingConn{Conn: conn, closed: make(chan struct{})}
	go func() {
		select {
		case <-l.closeOn:
			_ = closing.Close()
		case <-closing.closed:
		}
	}()
	return closing, nil
}

type closingConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *closingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
