// SPDX-License-Identifier: Apache-2.0

// Package odd has small servers that are not Talos, for scans to meet: each one opens a listener, does its one odd thing to
// every connection, and leaves no goroutine behind when it is closed.
package odd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthserver "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// patience bounds how long a connection is kept at most.
const patience = 5 * time.Minute

// maxConnections bounds the connections that are open at once; more are closed at once.
const maxConnections = 256

// server runs handle for each connection until it is closed.
type server struct {
	listener net.Listener
	handle   func(net.Conn)
	work     sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

func listen(address netip.AddrPort, handle func(net.Conn)) (io.Closer, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address.String())
	if err != nil {
		return nil, fmt.Errorf("odd server: %w", err)
	}
	s := &server{listener: listener, handle: handle, open: map[net.Conn]struct{}{}}
	s.work.Add(1)
	go s.accept()
	return s, nil
}

func (s *server) accept() {
	defer s.work.Done()
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		if !s.keep(c) {
			_ = c.Close() // too many, or too late
			continue
		}
		s.work.Add(1)
		go func() {
			defer s.work.Done()
			defer s.drop(c)
			if err := c.SetDeadline(time.Now().Add(patience)); err == nil {
				s.handle(c)
			}
		}()
	}
}

func (s *server) keep(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.open) >= maxConnections {
		return false
	}
	s.open[c] = struct{}{}
	return true
}

func (s *server) drop(c net.Conn) {
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	_ = c.Close() // done with it
}

// Close implements io.Closer: it ends the listener and every connection, and waits for all goroutines.
func (s *server) Close() error {
	s.mu.Lock()
	s.closed = true
	for c := range s.open {
		_ = c.Close() // its handler ends
	}
	s.mu.Unlock()
	err := s.listener.Close()
	s.work.Wait()
	return err
}

// write sends to a peer that may have left.
func write(c net.Conn, text string) { _, _ = io.WriteString(c, text) }

// hold reads and forgets until the peer leaves.
func hold(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// SSH greets as an ssh server and then waits.
func SSH(address netip.AddrPort) (io.Closer, error) {
	return listen(address, func(c net.Conn) {
		write(c, "SSH-2.0-OpenSSH_9.9\r\n")
		hold(c)
	})
}

// HTTP answers any first bytes as a plain web server that did not understand.
func HTTP(address netip.AddrPort) (io.Closer, error) {
	return listen(address, func(c net.Conn) {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			write(c, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request")
		}
	})
}

// Silent accepts and never says a word: a handshake with it hangs.
func Silent(address netip.AddrPort) (io.Closer, error) { return listen(address, hold) }

// floodSize is what Flood sends.
const floodSize = 64 << 20

// Flood sends 64 MiB of zeroes at once to whoever connects.
func Flood(address netip.AddrPort) (io.Closer, error) {
	return listen(address, func(c net.Conn) {
		chunk := make([]byte, 64<<10)
		for sent := 0; sent < floodSize; sent += len(chunk) {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
		hold(c)
	})
}

// HalfTLS answers a ClientHello with the first bytes of a record and then nothing: it hangs in the middle of the handshake.
func HalfTLS(address netip.AddrPort) (io.Closer, error) {
	return listen(address, func(c net.Conn) {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			// A handshake record of TLS 1.2 that announces 122 bytes and brings none.
			write(c, "\x16\x03\x03\x00\x7a")
			hold(c)
		}
	})
}

// TLSWithoutH2 is a TLS server that knows HTTP/1.1 only.
func TLSWithoutH2(address netip.AddrPort) (io.Closer, error) {
	certificate, err := selfSigned(address.Addr())
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	return listen(address, func(c net.Conn) {
		secured := tls.Server(c, config)
		if err := secured.Handshake(); err != nil {
			return
		}
		if _, err := secured.Read(make([]byte, 1)); err == nil {
			write(secured, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
		}
	})
}

// GRPC is a gRPC server over TLS that has the health service and nothing of Talos.
func GRPC(address netip.AddrPort) (io.Closer, error) {
	certificate, err := selfSigned(address.Addr())
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address.String())
	if err != nil {
		return nil, fmt.Errorf("odd server: %w", err)
	}
	s := &grpcServer{served: make(chan error, 1)}
	s.server = grpc.NewServer(grpc.WaitForHandlers(true), grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	})))
	grpc_health_v1.RegisterHealthServer(s.server, healthserver.NewServer())
	go func() { s.served <- s.server.Serve(listener) }()
	return s, nil
}

type grpcServer struct {
	server *grpc.Server
	served chan error
}

// Close implements io.Closer.
func (s *grpcServer) Close() error {
	s.server.Stop()
	if err := <-s.served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

func selfSigned(address netip.Addr) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("odd server: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "odd"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{address.AsSlice()}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("odd server: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
