// SPDX-License-Identifier: Apache-2.0

// Package serving makes the private keys and certificate requests of the people of a local stack, and authorities for
// tests of them.
package serving

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

const (
	// authorityLife and leafLife are how long certificates are good.
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// skew is how far clocks may differ.
	skew = 5 * time.Minute
)

// Pair is a certificate with its key, PEM.
type Pair struct{ Certificate, Key []byte }

// Authority signs certificates. Its key is never stored.
type Authority struct {
	// Certificate is the PEM of the authority.
	Certificate []byte
	parsed      *x509.Certificate
	key         crypto.Signer
}

// NewAuthority makes a certificate authority.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key of %s: %w", name, err)
	}
	template := template(name, authorityLife)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make certificate of %s: %w", name, err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read certificate of %s: %w", name, err)
	}
	return &Authority{Certificate: encodeCertificate(der), parsed: parsed, key: key}, nil
}

// Issue makes a serving certificate for DNS names and addresses; the first name is the subject.
func (a *Authority) Issue(names []string, addresses []net.IP) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make key of %s: %w", names[0], err)
	}
	template := template(names[0], leafLife)
	template.DNSNames, template.IPAddresses = names, addresses
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.parsed, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("make certificate of %s: %w", names[0], err)
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("key of %s: %w", names[0], err)
	}
	return Pair{Certificate: encodeCertificate(der), Key: encoded}, nil
}

// Request makes a key and a certificate request for a user of Kubernetes, both PEM.
func Request(user string, groups ...string) (request, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key of %s: %w", user, err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: user, Organization: groups},
	}, private)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate request of %s: %w", user, err)
	}
	key, err = encodeKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("key of %s: %w", user, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), key, nil
}

func template(name string, life time.Duration) *x509.Certificate {
	now := time.Now()
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // never fails (Go 1.24 and later)
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-skew),
		NotAfter:     now.Add(life),
	}
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
