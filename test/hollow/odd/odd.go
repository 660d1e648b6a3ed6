// SPDX-License-Identifier: Apache-2.0

// Package odd has small servers that are not Talos, for scans to meet: each one opens a listener, does its one odd thing to
// every connection, and leaves no goroutine behind when it is closed.
package odd

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
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
		if flood(c) == nil {
			hold(c)
		}
	})
}

func flood(w io.Writer) error {
	chunk := make([]byte, 64<<10)
	for sent := 0; sent < floodSize; sent += len(chunk) {
		if _, err := w.Write(chunk); err != nil {
			return err
		}
	}
	return nil
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

// Beacon greets as an ssh server and counts who comes by.
func Beacon(visits *atomic.Int64) func(netip.AddrPort) (io.Closer, error) {
	return func(address netip.AddrPort) (io.Closer, error) {
		return listen(address, func(c net.Conn) {
			visits.Add(1)
			write(c, "SSH-2.0-Beacon\r\n")
			hold(c)
		})
	}
}

// SMTP greets as a mail server and then waits.
func SMTP(address netip.AddrPort) (io.Closer, error) {
	return listen(address, func(c net.Conn) {
		write(c, "220 mail.example.org ESMTP\r\n")
		hold(c)
	})
}

// Closing accepts and closes at once.
func Closing(address netip.AddrPort) (io.Closer, error) { return listen(address, func(net.Conn) {}) }

// Resetting waits for the first byte and resets the connection.
func Resetting(address netip.AddrPort) (io.Closer, error) {
	return listen(address, func(c net.Conn) {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			reset(c)
		}
	})
}

// reset makes closing the connection a reset, whatever was not sent yet.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // else it is closed in peace, which a test would notice
	}
}

// Deaf accepts and neither reads nor says a word.
func Deaf(address netip.AddrPort) (io.Closer, error) {
	return listen(address, func(c net.Conn) {
		tcp, ok := c.(*net.TCPConn)
		if !ok {
			return
		}
		if raw, err := tcp.SyscallConn(); err == nil {
			// Looks whether there is something to read, and leaves it, until the connection is closed at this end.
			_ = raw.Read(func(uintptr) bool { return false })
		}
	})
}

// pace is the time between two bytes of a server that trickles.
const pace = 20 * time.Millisecond

// trickle writes one byte at a time until the peer leaves.
func trickle(c net.Conn, text string) {
	left := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(left)
		hold(c)
	})
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for i := 0; ; i++ {
		b := byte(0)
		if i < len(text) {
			b = text[i]
		}
		if _, err := c.Write([]byte{b}); err != nil {
			break
		}
		select {
		case <-ticker.C:
			continue
		case <-left:
		}
		break
	}
	_ = c.Close() // the reader ends
	reading.Wait()
}

// Trickle answers a ClientHello with a handshake record of 16 KiB, byte by byte: it never falls silent, and never gets done.
func Trickle(address netip.AddrPort) (io.Closer, error) {
	return listen(address, func(c net.Conn) {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			trickle(c, "\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03")
		}
	})
}

// Proxy forwards to another address, as a load balancer or a port forwarding does.
func Proxy(target netip.Addr) func(netip.AddrPort) (io.Closer, error) {
	return func(address netip.AddrPort) (io.Closer, error) {
		return listen(address, func(c net.Conn) {
			dialer := net.Dialer{Timeout: patience}
			behind, err := dialer.DialContext(context.Background(), "tcp", netip.AddrPortFrom(target, address.Port()).String())
			if err != nil {
				return
			}
			if err := behind.SetDeadline(time.Now().Add(patience)); err != nil {
				_ = behind.Close() // it is broken already
				return
			}
			var back sync.WaitGroup
			back.Go(func() {
				_, _ = io.Copy(c, behind) // until either end leaves
				_ = c.Close()             // ends the other direction
			})
			_, _ = io.Copy(behind, c) // until either end leaves
			_ = behind.Close()        // ends the other direction
			back.Wait()
		})
	}
}
