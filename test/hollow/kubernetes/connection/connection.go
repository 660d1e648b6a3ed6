// SPDX-License-Identifier: Apache-2.0

// Package connection makes Kubernetes clients whose connections end with their owner. client-go keeps every TLS
// transport for the life of the process; a process that hosts thousands of hollow nodes, each rebooting and rotating its
// certificate, needs transports it can close.
package connection

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"maesh.dev/ichor/test/hollow/kubernetes/pki"
)

const (
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	// requestTimeout bounds a call that has no closer deadline of its own; none of the callers watches.
	requestTimeout = 15 * time.Second
	// pingAfter and pingTimeout find out that a peer died without closing its connection.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second

	queriesPerSecond = 50
	burst            = 100
)

// Identity is how the caller authenticates; exactly one field is set.
type Identity struct {
	// Certificate returns the client certificate for the next handshake.
	Certificate func() (*tls.Certificate, error)
	// Token is a bearer token.
	Token string
}

// Connection is a client configuration with its HTTP client.
type Connection struct {
	Config *rest.Config
	HTTP   *http.Client

	transport *http.Transport
}

// New prepares a connection to the API server at url, whose certificate must be signed by a CA of the bundle.
func New(url string, bundle []byte, userAgent string, identity Identity) (*Connection, error) {
	if (identity.Certificate == nil) == (identity.Token == "") {
		return nil, errors.New("connect to kubernetes: need a certificate or a token, not both")
	}

	pool, err := pki.Pool(bundle)
	if err != nil {
		return nil, err
	}

	tlsConfig := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}

	if identity.Certificate != nil {
		tlsConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return identity.Certificate()
		}
	}

	base := &http.Transport{
		TLSClientConfig:       tlsConfig,
		TLSHandshakeTimeout:   handshakeTimeout,
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}).DialContext,
		ResponseHeaderTimeout: requestTimeout,
		IdleConnTimeout:       time.Minute,
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}

	var roundTripper http.RoundTripper = transport.NewUserAgentRoundTripper(userAgent, base)
	if identity.Token != "" {
		roundTripper = transport.NewBearerAuthRoundTripper(identity.Token, roundTripper)
	}

	return &Connection{
		Config:    &rest.Config{Host: url, QPS: queriesPerSecond, Burst: burst, UserAgent: userAgent},
		HTTP:      &http.Client{Transport: roundTripper, Timeout: requestTimeout},
		transport: base,
	}, nil
}

// Close drops idle connections; a request under way keeps its own until it is answered.
func (c *Connection) Close() { c.transport.CloseIdleConnections() }
