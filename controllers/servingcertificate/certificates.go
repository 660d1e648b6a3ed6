// SPDX-License-Identifier: Apache-2.0

package servingcertificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"time"
)

// skew is how far clocks may differ: a certificate is good from that long before it was made.
const skew = 5 * time.Minute

// authority is a certificate authority with its key.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// leaf is a serving certificate with its key, as ichor-apiserver reads them.
type leaf struct {
	certificate *x509.Certificate
	chain, key  []byte // PEM
}

// made is when a certificate of this package was made.
func made(certificate *x509.Certificate) time.Time { return certificate.NotBefore.Add(skew) }

// newAuthority makes an authority that is good from now on. Its name tells generations apart.
func newAuthority(now time.Time, life time.Duration) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, fmt.Errorf("make a key: %w", err)
	}
	template := newTemplate(fmt.Sprintf("ichor-apiserver-ca@%d", now.Unix()), now, now.Add(life))
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	certificate, err := sign(template, template, key.Public(), key)
	if err != nil {
		return authority{}, err
	}
	return authority{certificate, key}, nil
}

// issue makes a serving certificate for DNS names and IP addresses.
func (a authority) issue(names []string, now, until time.Time) (leaf, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return leaf{}, fmt.Errorf("make a key: %w", err)
	}
	template := newTemplate(names[0], now, until)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	// ichor-apiserver shows the same certificate to ichor-controller, where it asks for a machine's log.
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, name := range names {
		if address, err := netip.ParseAddr(name); err == nil {
			template.IPAddresses = append(template.IPAddresses, address.AsSlice())
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	certificate, err := sign(template, a.certificate, key.Public(), a.key)
	if err != nil {
		return leaf{}, err
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return leaf{}, err
	}
	return leaf{certificate, encodeCertificates(certificate), encoded}, nil
}

func newTemplate(name string, now, until time.Time) *x509.Certificate {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // never fails (Go 1.24 and later)
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-skew), NotAfter: until,
	}
}

func sign(template, parent *x509.Certificate, public any, key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", template.Subject, err)
	}
	return x509.ParseCertificate(der)
}

// signed tells whether a certificate is this authority's.
func (a authority) signed(certificate *x509.Certificate) bool {
	return a.certificate != nil && certificate != nil && certificate.CheckSignatureFrom(a.certificate) == nil
}

// valid tells whether a certificate is good at a time.
func valid(certificate *x509.Certificate, now time.Time) bool {
	return certificate != nil && !now.Before(certificate.NotBefore) && now.Before(certificate.NotAfter)
}

func encodeCertificates(certificates ...*x509.Certificate) []byte {
	var out []byte
	for _, certificate := range certificates {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})...)
	}
	return out
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// decodeCertificates reads the certificates of a PEM text.
func decodeCertificates(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, certificate)
	}
	if len(bytes.TrimSpace(text)) > 0 {
		return nil, errors.New("there is something that is no PEM")
	}
	return out, nil
}

// decodeAuthority reads an authority and sees that its key is its own. The error never tells of the key.
func decodeAuthority(certificate, key []byte) (authority, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return authority{}, errors.New("certificate and key can't be read or don't belong together")
	}
	private, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return authority{}, errors.New("it is no certificate authority with an ECDSA key")
	}
	return authority{pair.Leaf, private}, nil
}

// decodeLeaf reads a serving certificate with its key.
func decodeLeaf(certificate, key []byte) (leaf, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return leaf{}, errors.New("certificate and key can't be read or don't belong together")
	}
	return leaf{pair.Leaf, certificate, key}, nil
}
