// SPDX-License-Identifier: Apache-2.0

// Package pki makes the certificates of a hollow node's API: the throw-away ones of maintenance, those of a configured
// control plane from its own CA, those of a worker from trustd.
package pki

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// SANs are the names that a server certificate is valid for.
type SANs struct {
	Addresses []netip.Addr
	DNSNames  []string
	// FQDN becomes the common name of a configured node's certificate.
	FQDN string
}

func (s SANs) ips() []net.IP {
	ips := make([]net.IP, 0, len(s.Addresses))
	for _, a := range s.Addresses {
		ips = append(ips, net.IP(a.AsSlice()))
	}
	return ips
}

// Maintenance is the certificate authority of maintenance mode: it is made at boot, never stored, and signs each leaf.
type Maintenance struct {
	ca *x509.CertificateAuthority
}

// NewMaintenance makes the authority of one boot (Talos: secrets/maintenance_root.go).
func NewMaintenance() (*Maintenance, error) {
	ca, err := x509.NewSelfSignedCertificateAuthority()
	if err != nil {
		return nil, fmt.Errorf("make the maintenance CA: %w", err)
	}
	return &Maintenance{ca: ca}, nil
}

// Leaf issues a server certificate with a new key; the one before is not renewed but replaced (Talos: secrets/api.go).
func (m *Maintenance) Leaf(sans SANs) (*tls.Certificate, error) {
	pair, err := x509.NewKeyPair(m.ca,
		x509.IPAddresses(sans.ips()),
		x509.DNSNames(sans.DNSNames),
		x509.CommonName(constants.MaintenanceServiceCommonName),
		x509.NotAfter(time.Now().Add(x509.DefaultCertificateValidityDuration)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}),
	)
	if err != nil {
		return nil, fmt.Errorf("issue the maintenance certificate: %w", err)
	}
	return pair.Certificate, nil
}

// Fingerprint is how the console and talosctl show a certificate: base64 of the SHA-256 of its public key.
func Fingerprint(cert *tls.Certificate) (string, error) {
	fingerprint, err := x509.SPKIFingerprintFromDER(cert.Certificate[0])
	if err != nil {
		return "", fmt.Errorf("fingerprint: %w", err)
	}
	return fingerprint.String(), nil
}

// CertificatePEM is the authority's certificate.
func (m *Maintenance) CertificatePEM() []byte { return m.ca.CrtPEM }
