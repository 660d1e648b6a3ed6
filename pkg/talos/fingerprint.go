// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// FingerprintOf is the fingerprint of a certificate: of its key, so that it survives a renewal with the same key.
func FingerprintOf(certificate *x509.Certificate) Fingerprint {
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return Fingerprint(base64.StdEncoding.EncodeToString(sum[:]))
}

// ParseFingerprint reads a fingerprint as a person copies it from a console.
func ParseFingerprint(text string) (Fingerprint, error) {
	text = strings.TrimSpace(text)
	sum, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(sum) != sha256.Size {
		return "", fmt.Errorf("fingerprint %q is not the base64 of a SHA-256 (44 characters); copy it from the machine's console", cut(text, 64))
	}
	return Fingerprint(text), nil
}

var errNoCertificate = errors.New("the peer presents no certificate")

// maintenanceTLS verifies a maintenance certificate by its fingerprint alone: Talos signs it with an authority that
// lives in memory only and that nobody can know. Source: Talos, internal/app/machined/pkg/controllers/secrets.
func maintenanceTLS(address netip.Addr, pin Fingerprint) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{http2Protocol},
		// The chain can't be verified, see above; VerifyConnection compares the key with the pin instead. It runs in the
		// handshake, before anything but the handshake was written. Without a pin the connection is for reading only.
		InsecureSkipVerify: true, //nolint:gosec
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errNoCertificate
			}
			if got := FingerprintOf(state.PeerCertificates[0]); pin != "" && got != pin {
				return &FingerprintError{Address: address.String(), Want: pin, Got: got}
			}
			return nil
		},
	}
}

// configuredTLS is mutual TLS with the cluster's authorities. The node's certificate must name the dialled address.
// Source: Talos, internal/app/machined/pkg/controllers/secrets/api_cert_sans.go.
func configuredTLS(address netip.Addr, credentials Credentials) (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(credentials.CA) {
		return nil, errors.New("the credentials hold no certificate authority")
	}
	pair, err := tls.X509KeyPair(credentials.Certificate, credentials.Key)
	if err != nil {
		return nil, errors.New("the credentials' client certificate and key can't be used") // the cause may quote the key
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{http2Protocol},
		ServerName:   address.String(),
		RootCAs:      roots,
		Certificates: []tls.Certificate{pair},
	}, nil
}
