// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/siderolabs/crypto/x509"
)

// Authority is the Talos CA as the machine configuration gives it to a node.
type Authority struct {
	// Issuing is .machine.ca; it has a key on control planes only.
	Issuing *x509.PEMEncodedCertificateAndKey
	// Accepted are .machine.acceptedCAs and, last, .machine.ca.
	Accepted []*x509.PEMEncodedCertificate
	// Token is .machine.token, with which a worker asks trustd for its certificate.
	Token string
}

// Pool is the set of accepted CAs.
func (a Authority) Pool() (*stdx509.CertPool, error) {
	pool := stdx509.NewCertPool()
	for _, ca := range a.Accepted {
		if !pool.AppendCertsFromPEM(ca.Crt) {
			return nil, errors.New("accepted Talos CA: no certificate in its PEM")
		}
	}
	return pool, nil
}

// SelfIssue makes a control plane's server certificate from the CA's key in its configuration.
func (a Authority) SelfIssue(sans SANs) (*tls.Certificate, error) {
	if a.Issuing == nil || len(a.Issuing.Key) == 0 {
		return nil, errors.New("issue the API certificate: the configuration has no Talos CA key")
	}
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(a.Issuing)
	if err != nil {
		return nil, fmt.Errorf("read the Talos CA: %w", err)
	}
	pair, err := x509.NewKeyPair(ca,
		x509.IPAddresses(sans.ips()),
		x509.DNSNames(sans.DNSNames),
		x509.CommonName(sans.FQDN),
		x509.NotAfter(time.Now().Add(x509.DefaultCertificateValidityDuration)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}),
	)
	if err != nil {
		return nil, fmt.Errorf("issue the API certificate: %w", err)
	}
	return pair.Certificate, nil
}

// Identity is what a listener presents and accepts; it changes while the listener runs.
type Identity struct {
	current atomic.Pointer[identity]
}

type identity struct {
	certificate *tls.Certificate
	// clients is nil in maintenance: nobody is asked for a certificate.
	clients *stdx509.CertPool
}

// Set replaces certificate and accepted CAs for connections made from now on.
func (i *Identity) Set(certificate *tls.Certificate, clients *stdx509.CertPool) {
	i.current.Store(&identity{certificate: certificate, clients: clients})
}

// Certificate is what is presented now, nil before the first Set.
func (i *Identity) Certificate() *tls.Certificate {
	if id := i.current.Load(); id != nil {
		return id.certificate
	}
	return nil
}

// ServerConfig is apid's: TLS 1.3, h2, no session tickets; with accepted CAs it demands a client certificate whose
// extended key usage is exactly clientAuth (Talos: internal/app/apid/service.go).
func (i *Identity) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{"h2"},
		SessionTicketsDisabled: true,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			id := i.current.Load()
			if id == nil {
				return nil, errors.New("no certificate yet")
			}
			cfg := &tls.Config{
				MinVersion:             tls.VersionTLS13,
				NextProtos:             []string{"h2"},
				SessionTicketsDisabled: true,
				Certificates:           []tls.Certificate{*id.certificate},
			}
			if id.clients != nil {
				cfg.ClientAuth = tls.RequireAndVerifyClientCert
				cfg.ClientCAs = id.clients
				cfg.VerifyPeerCertificate = requireClientUsage
			}
			return cfg, nil
		},
	}
}

func requireClientUsage(_ [][]byte, chains [][]*stdx509.Certificate) error {
	if len(chains) == 0 {
		return errors.New("no verified chains")
	}
	for _, cert := range chains[0] {
		if !cert.IsCA && !slices.Equal(cert.ExtKeyUsage, []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}) {
			return fmt.Errorf("certificate %q is missing the client auth extended key usage", cert.Subject)
		}
	}
	return nil
}

// SameCAs tells whether two authorities accept and issue alike, so that nothing has to be issued again.
func (a Authority) SameCAs(b Authority) bool {
	equal := func(x, y *x509.PEMEncodedCertificate) bool { return bytes.Equal(x.Crt, y.Crt) }
	if (a.Issuing == nil) != (b.Issuing == nil) || a.Token != b.Token {
		return false
	}
	if a.Issuing != nil && (!bytes.Equal(a.Issuing.Crt, b.Issuing.Crt) || !bytes.Equal(a.Issuing.Key, b.Issuing.Key)) {
		return false
	}
	return slices.EqualFunc(a.Accepted, b.Accepted, equal)
}
