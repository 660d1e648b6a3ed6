// SPDX-License-Identifier: Apache-2.0

package kubeletcertificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const (
	// maxRequest is the size of the largest request that is parsed, in bytes; a kubelet's has some hundreds.
	maxRequest = 64 << 10
	// minRSA is the length of the shortest RSA key, in bits.
	minRSA = 2048
)

// request is what a certificate is asked for.
type request struct {
	commonName    string
	organizations []string
	names         []string
	addresses     []netip.Addr
	// odd is what no kubelet asks for; empty if there is nothing.
	odd string
	key any
}

// parse reads a request and checks that it was signed by the key that it is for.
func parse(text []byte) (*request, error) {
	if len(text) > maxRequest {
		return nil, fmt.Errorf("the request is larger than %d bytes", maxRequest)
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("the request is not one PEM block of the type CERTIFICATE REQUEST")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, errors.New("the request can't be parsed")
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, errors.New("the request is not signed by the key that it is for")
	}
	out := &request{
		commonName: parsed.Subject.CommonName, organizations: parsed.Subject.Organization, names: parsed.DNSNames, key: parsed.PublicKey,
	}
	switch {
	case len(parsed.URIs) > 0:
		out.odd = "it asks for URIs"
	case len(parsed.EmailAddresses) > 0:
		out.odd = "it asks for e-mail addresses"
	}
	for _, ip := range parsed.IPAddresses {
		address, ok := netip.AddrFromSlice(ip)
		if !ok {
			return nil, errors.New("the request has an address that is none")
		}
		out.addresses = append(out.addresses, address.Unmap())
	}
	return out, nil
}

// usages are those that the signer takes: with a key that can't encipher, and with one that can. Source: Kubernetes,
// pkg/apis/certificates/helpers.go (ValidateKubeletServingCSR).
var usages = [][]certificatesv1.KeyUsage{
	{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
	{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageServerAuth},
}

// malformed says what in a request no kubelet asks for; empty if there is nothing. It goes by what can never change.
func malformed(request *request, user string, asked []certificatesv1.KeyUsage) string {
	switch {
	case request.commonName != user:
		return fmt.Sprintf("its common name is %s, and %s asks", quote(request.commonName), user)
	case !slices.Equal(request.organizations, []string{nodeGroup}):
		return fmt.Sprintf("its organization is not %s alone", nodeGroup)
	case request.odd != "":
		return request.odd
	case len(request.names) == 0 && len(request.addresses) == 0:
		return "it asks for no name and no address"
	case !usagesFit(asked):
		return "its usages are not those of a kubelet's serving certificate: digital signature, server auth, and key encipherment for an RSA key"
	}
	return weak(request.key)
}

func usagesFit(asked []certificatesv1.KeyUsage) bool {
	sorted := slices.Compact(slices.Sorted(slices.Values(asked)))
	return slices.ContainsFunc(usages, func(allowed []certificatesv1.KeyUsage) bool {
		return slices.Equal(sorted, slices.Sorted(slices.Values(allowed)))
	})
}

// weak says why a key is not taken; empty if it is.
func weak(key any) string {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		if slices.Contains([]elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()}, key.Curve) {
			return ""
		}
	case ed25519.PublicKey:
		return ""
	case *rsa.PublicKey:
		if key.N.BitLen() >= minRSA {
			return ""
		}
		return fmt.Sprintf("its RSA key has %d bits; at least %d are asked for", key.N.BitLen(), minRSA)
	}
	return "its key is of a kind that is not taken"
}
