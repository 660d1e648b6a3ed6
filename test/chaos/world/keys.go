// SPDX-License-Identifier: Apache-2.0

package world

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
	"os"
	"path/filepath"
	"time"
)

// life is how long certificates are good; a world is gone sooner.
const life = 24 * time.Hour

// authority signs the certificates of one kind of neighbours.
type authority struct {
	dir, name string
	parsed    *x509.Certificate
	key       crypto.Signer
	pem       []byte
	// addresses are those of all parts.
	addresses []net.IP
}

// file is where the authority's certificate is.
func (a *authority) file() string { return filepath.Join(a.dir, a.name+".crt") }

func newAuthority(dir, name string, addresses []net.IP) (*authority, error) {
	a := &authority{dir: dir, name: name, addresses: addresses}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("make key of %s: %w", name, err)
	}
	if a.parsed, a.pem, err = sign(template, nil, a.key.Public(), a.key); err != nil {
		return nil, fmt.Errorf("make certificate of %s: %w", name, err)
	}
	return a, os.WriteFile(a.file(), a.pem, 0o600)
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, []byte, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, nil, err
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = serial, time.Now().Add(-time.Minute), time.Now().Add(life)
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	return parsed, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

// issue makes a certificate that is good for both ends of a connection on this machine, and writes it and its key to
// files.
func (a *authority) issue(name string, groups ...string) (certFile, keyFile string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("make key of %s: %w", name, err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: groups}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost", name}, IPAddresses: a.addresses,
	}
	_, certificate, err := sign(template, a.parsed, key.Public(), a.key)
	if err != nil {
		return "", "", fmt.Errorf("issue certificate of %s: %w", name, err)
	}
	certFile, keyFile = filepath.Join(a.dir, a.name+"-"+name+".crt"), filepath.Join(a.dir, a.name+"-"+name+".key")
	if err := os.WriteFile(certFile, certificate, 0o600); err != nil {
		return "", "", err
	}
	return certFile, keyFile, writeKey(keyFile, key)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
