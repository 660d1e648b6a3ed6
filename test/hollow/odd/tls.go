// SPDX-License-Identifier: Apache-2.0

package odd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"time"
)

// stranger is the name in the certificates of servers that have nothing of Talos.
const stranger = "odd"

// overTLS runs handle after each handshake.
func overTLS(address netip.AddrPort, name string, change func(*tls.Config), handle func(net.Conn, *tls.Conn)) (io.Closer, error) {
	config, err := serving(address.Addr(), name)
	if err != nil {
		return nil, err
	}
	change(config)
	return listen(address, func(c net.Conn) {
		secured := tls.Server(c, config)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := secured.HandshakeContext(ctx); err == nil {
			handle(c, secured)
		}
	})
}

// serving is the TLS configuration of a server that speaks HTTP/2, with a certificate in this name that signs itself.
func serving(address netip.Addr, name string) (*tls.Config, error) {
	certificate, err := selfSigned(address, name)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}, nil
}

func unchanged(*tls.Config) {}

// TLSWithoutH2 is a TLS server that knows HTTP/1.1 only.
func TLSWithoutH2(address netip.AddrPort) (io.Closer, error) {
	return overTLS(address, stranger, func(c *tls.Config) { c.NextProtos = nil }, func(_ net.Conn, secured *tls.Conn) {
		if _, err := secured.Read(make([]byte, 1)); err == nil {
			write(secured, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
		}
	})
}

// OldTLS is a server that doesn't know TLS 1.3.
func OldTLS(address netip.AddrPort) (io.Closer, error) {
	return overTLS(address, stranger, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, func(_ net.Conn, secured *tls.Conn) { hold(secured) })
}

// Locked demands a client certificate that nobody has.
func Locked(address netip.AddrPort) (io.Closer, error) {
	return overTLS(address, stranger, func(c *tls.Config) {
		c.ClientAuth, c.ClientCAs, c.MinVersion = tls.RequireAndVerifyClientCert, x509.NewCertPool(), tls.VersionTLS13
	}, func(_ net.Conn, secured *tls.Conn) { hold(secured) })
}

// H2Reset agrees to HTTP/2 and resets the connection.
func H2Reset(address netip.AddrPort) (io.Closer, error) {
	return overTLS(address, stranger, unchanged, func(c net.Conn, _ *tls.Conn) { reset(c) })
}

// H2Silent agrees to HTTP/2 and never says a word of it.
func H2Silent(address netip.AddrPort) (io.Closer, error) {
	return overTLS(address, stranger, unchanged, func(_ net.Conn, secured *tls.Conn) { hold(secured) })
}

// H2Trickle agrees to HTTP/2 and sends a frame of 16 KiB, byte by byte.
func H2Trickle(address netip.AddrPort) (io.Closer, error) {
	return overTLS(address, stranger, unchanged, func(_ net.Conn, secured *tls.Conn) { trickle(secured, "\x00\x40\x00\x04\x00\x00\x00\x00\x00") })
}

// H2Flood agrees to HTTP/2 and sends 64 MiB of zeroes.
func H2Flood(address netip.AddrPort) (io.Closer, error) {
	return overTLS(address, stranger, unchanged, func(_ net.Conn, secured *tls.Conn) {
		if flood(secured) == nil {
			hold(secured)
		}
	})
}

func selfSigned(address netip.Addr, name string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("odd server: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{address.AsSlice()}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("odd server: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
