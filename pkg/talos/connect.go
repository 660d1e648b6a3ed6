// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
)

const (
	http2Protocol = "h2"
	// maxMessage is the size of the largest message that is read. Talos allows 32 MiB (constants.GRPCMaxMessageSize); no
	// answer that Ichor asks for comes near this.
	maxMessage = 8 << 20
	// maxHeaders is the size of the largest set of HTTP/2 headers that is read.
	maxHeaders = 64 << 10
	// window is how much a peer may send ahead of its reader, per connection. It is static: gRPC's estimate could grow it.
	window = 1 << 20
	// buffer is the size of gRPC's own buffers of a connection, in bytes. There is one connection to each machine all the
	// time, which TLS buffers anyway; gRPC's default would be 64 KiB more for each.
	buffer = 1 << 10
	// maintenanceBudget is how much an unauthenticated peer may send over the life of a connection.
	maintenanceBudget = 64 << 20
	// configuredBudget is practically none: the peer proved that it belongs to the cluster.
	configuredBudget = 1 << 40
)

// socketKeepAlive finds dead peers of idle connections. It is TCP's, because a node's gRPC server ends connections that
// ping more often than every five minutes (gRPC's default enforcement policy).
var socketKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// errConnectionGone is what a call meets once its connection is lost. Connections are never made again behind the
// caller's back: another connection may lead to another machine.
var errConnectionGone = errors.New("the connection is gone; dial again")

// channel is gRPC over one connection.
type channel struct {
	*grpc.ClientConn
	address netip.Addr
	leaf    Fingerprint
	wire    *wire
}

// connectTCP opens a TCP connection within ctx.
func connectTCP(ctx context.Context, address netip.Addr, port uint16) (net.Conn, error) {
	to := netip.AddrPortFrom(address.Unmap(), port)
	dialer := net.Dialer{KeepAliveConfig: socketKeepAlive, Control: askAtOnce(to)}
	return dialer.DialContext(ctx, "tcp", to.String())
}

// openChannel connects, completes the TLS handshake by config's rules and hands the connection to gRPC. Nothing but the
// handshake is written before config has accepted the peer.
func openChannel(ctx context.Context, address netip.Addr, port uint16, config *tls.Config, budget int64) (*channel, error) {
	conn, err := connectTCP(ctx, address, port)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	first, err := readFirst(ctx, secure)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return overTLS(ctx, address, secure, first, budget)
}

// readFirst reads the head of the server's HTTP/2 preface before anything is written. A node that refuses the client's
// certificate says so here, in words; a client that has begun to write may find the connection broken instead.
func readFirst(ctx context.Context, secure *tls.Conn) ([]byte, error) {
	release := context.AfterFunc(ctx, func() { _ = secure.SetReadDeadline(time.Unix(1, 0)) })
	first := make([]byte, frameHeaderLength)
	_, err := io.ReadFull(secure, first)
	if !release() { // the context has ended, and the deadline is set, or about to be
		return nil, fmt.Errorf("the peer doesn't answer: %w", ctx.Err())
	}
	return first, err
}

// overTLS runs gRPC over a connection whose handshake is done, and waits until the peer has spoken HTTP/2. It owns the
// connection, also when it fails.
func overTLS(ctx context.Context, address netip.Addr, secure *tls.Conn, pending []byte, budget int64) (*channel, error) {
	state := secure.ConnectionState()
	if len(state.PeerCertificates) == 0 {
		_ = secure.NetConn().Close()
		return nil, errNoCertificate
	}
	if state.NegotiatedProtocol != http2Protocol {
		_ = secure.NetConn().Close()
		return nil, errors.New("the peer speaks TLS, but not HTTP/2")
	}
	w := newWire(secure, pending, budget)
	var handed atomic.Bool
	client, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(address.String(), strconv.Itoa(Port)),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if handed.Swap(true) {
				return nil, errConnectionGone
			}
			return w, nil
		}),
		grpc.WithTransportCredentials(handover{state: state}),
		grpc.WithAuthority(net.JoinHostPort(address.String(), strconv.Itoa(Port))),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
		grpc.WithUserAgent("ichor"),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 5 * time.Second}),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithReadBufferSize(buffer),
		grpc.WithWriteBufferSize(buffer),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	)
	if err != nil {
		_ = secure.NetConn().Close()
		return nil, err
	}
	c := &channel{ClientConn: client, address: address, leaf: FingerprintOf(state.PeerCertificates[0]), wire: w}
	if err := c.awaitReady(ctx); err != nil {
		_ = c.Close()
		if !handed.Swap(true) { // gRPC never took the connection, so it doesn't close it
			_ = secure.NetConn().Close()
		}
		return nil, err
	}
	return c, nil
}

// awaitReady waits for the peer's HTTP/2 preface. With TLS 1.3 this is where a refused client certificate shows.
func (c *channel) awaitReady(ctx context.Context) error {
	c.Connect()
	for started := false; ; {
		state := c.GetState()
		switch {
		case state == connectivity.Ready:
			return nil
		case state == connectivity.TransientFailure, state == connectivity.Shutdown, started && state == connectivity.Idle:
			if err := c.wire.readError(); err != nil {
				return err
			}
			return errors.New("the peer doesn't speak HTTP/2")
		case state == connectivity.Connecting:
			started = true
		}
		if !c.WaitForStateChange(ctx, state) {
			if err := c.wire.readError(); err != nil {
				return err
			}
			return fmt.Errorf("the peer doesn't answer: %w", ctx.Err())
		}
	}
}

// handover tells gRPC that a connection is encrypted already.
type handover struct{ state tls.ConnectionState }

func (h handover) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return conn, credentials.TLSInfo{
		State:          h.state,
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

func (h handover) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("only clients hand a connection over")
}

func (h handover) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls", SecurityVersion: "1.3"}
}

func (h handover) Clone() credentials.TransportCredentials { return h }

func (h handover) OverrideServerName(string) error { return nil }
