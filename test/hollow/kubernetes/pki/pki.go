// SPDX-License-Identifier: Apache-2.0

// Package pki issues the certificates of a hollow node from the CAs in its machine configuration, with the names, usages
// and lifetimes Talos uses (Talos: internal/pkg/etcd/certs.go, internal/app/machined/pkg/controllers/secrets). It holds
// no state; what it writes goes to a folder that only the owner may read and that a reboot throws away.
package pki

import (
	"bytes"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/siderolabs/crypto/x509"
)

// Pair is a certificate and its key in PEM.
type Pair = x509.PEMEncodedCertificateAndKey

// Identity is the node that certificates are issued for.
type Identity struct {
	Hostname string
	Address  netip.Addr
}

// errNoKey tells a worker's configuration, which carries CA certificates without their keys, from a control plane's.
var errNoKey = errors.New("the machine configuration has no key for this CA; only control planes can issue certificates")

// issue makes a key and a certificate signed by ca. The key's kind follows the CA's.
func issue(ca *Pair, options ...x509.Option) (*Pair, error) {
	if ca == nil || len(ca.Key) == 0 {
		return nil, errNoKey
	}

	authority, err := x509.NewCertificateAuthorityFromCertificateAndKey(ca)
	if err != nil {
		return nil, fmt.Errorf("read CA: %w", err)
	}

	options = append([]x509.Option{
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature | stdx509.KeyUsageKeyEncipherment),
	}, options...)

	pair, err := x509.NewKeyPair(authority, options...)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}

	return x509.NewCertificateAndKeyFromKeyPair(pair), nil
}

func usage(usages ...stdx509.ExtKeyUsage) x509.Option { return x509.ExtKeyUsage(usages) }

// Bundle joins the accepted CAs and the certificate of the issuing one into one PEM text, without repeating a CA.
func Bundle(accepted []*x509.PEMEncodedCertificate, issuing *Pair) []byte {
	var certificates [][]byte

	add := func(pem []byte) {
		if pem = bytes.TrimSpace(pem); len(pem) == 0 {
			return
		}

		for _, known := range certificates {
			if bytes.Equal(known, pem) {
				return
			}
		}

		certificates = append(certificates, pem)
	}

	for _, ca := range accepted {
		add(ca.Crt)
	}

	if issuing != nil {
		add(issuing.Crt)
	}

	if len(certificates) == 0 {
		return nil
	}

	return append(bytes.Join(certificates, []byte("\n")), '\n')
}

// TLSCertificate parses a pair for crypto/tls.
func TLSCertificate(pair *Pair) (tls.Certificate, error) {
	certificate, err := tls.X509KeyPair(pair.Crt, pair.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("parse certificate and key: %w", err)
	}

	return certificate, nil
}

// Pool parses a PEM bundle of CAs.
func Pool(bundle []byte) (*stdx509.CertPool, error) {
	pool := stdx509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, errors.New("no CA certificate in the bundle")
	}

	return pool, nil
}

// Folder is a place for keys and certificates: mode 0700, files 0600.
type Folder string

// Write stores a file through a rename, so that a reader never sees half of it, and returns its path.
func (f Folder) Write(name string, content []byte) (string, error) {
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return "", fmt.Errorf("make folder of keys: %w", err)
	}

	path := filepath.Join(string(f), name)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}

	if err := os.Rename(path+".new", path); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}

	return path, nil
}

// writePair stores name.crt and name.key.
func (f Folder) writePair(name string, pair *Pair) (crt, key string, err error) {
	if crt, err = f.Write(name+".crt", pair.Crt); err != nil {
		return "", "", err
	}

	if key, err = f.Write(name+".key", pair.Key); err != nil {
		return "", "", err
	}

	return crt, key, nil
}
