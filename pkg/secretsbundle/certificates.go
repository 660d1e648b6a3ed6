// SPDX-License-Identifier: Apache-2.0

package secretsbundle

import (
	stdx509 "crypto/x509"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"maesh.dev/ichor/pkg/talos"
)

// clockSkew is how far a machine's clock may be behind ours: certificates are valid from that long ago.
const clockSkew = 5 * time.Minute

// CredentialsTTL is how long the controller's own client certificates live. They are renewed at half of it.
const CredentialsTTL = time.Hour

// Credentials issues a client certificate for the Talos API with the given role. Talos reads roles from the
// certificate's organizations: Talos: pkg/machinery/role.
func (b *Bundle) Credentials(now time.Time, as role.Role, ttl time.Duration) (talos.Credentials, error) {
	pair, err := b.talosClient(now, as, ttl)
	if err != nil {
		return talos.Credentials{}, err
	}
	return talos.Credentials{
		CA:          b.talos.Certs.OS.Crt,
		Certificate: pair.Crt,
		Key:         pair.Key,
		NotAfter:    now.Add(ttl),
	}, nil
}

// TalosConfig makes a talosconfig for a person.
func (b *Bundle) TalosConfig(now time.Time, clusterName string, endpoints []string, as role.Role, ttl time.Duration) ([]byte, error) {
	pair, err := b.talosClient(now, as, ttl)
	if err != nil {
		return nil, err
	}
	text, err := config.NewConfig(clusterName, endpoints, b.talos.Certs.OS.Crt, pair).Bytes()
	if err != nil {
		return nil, fmt.Errorf("write the talosconfig of cluster %s: encoding failed", clusterName)
	}
	return text, nil
}

func (b *Bundle) talosClient(now time.Time, as role.Role, ttl time.Duration) (*x509.PEMEncodedCertificateAndKey, error) {
	pair, err := secrets.NewAdminCertificateAndKey(now.Add(-clockSkew), b.talos.Certs.OS, role.MakeSet(as), ttl+clockSkew)
	if err != nil {
		return nil, fmt.Errorf("issue a Talos client certificate for role %s: %w", as, err)
	}
	return pair, nil
}

// ClientPair is a client certificate with its key and the authority that servers are verified against, all PEM.
type ClientPair struct {
	CA, Certificate, Key []byte
}

// EtcdClient issues a client certificate for the cluster's etcd. Etcd on Talos has no users: whoever holds such a
// certificate may read and write everything in it.
func (b *Bundle) EtcdClient(now time.Time, commonName string, ttl time.Duration) (ClientPair, error) {
	return b.client("etcd", b.talos.Certs.Etcd, now, commonName, ttl)
}

// KubernetesClient issues a client certificate for the Kubernetes API, of a user without groups: it may ask whether the
// API is ready and in which version, and whatever else RBAC gives to that name.
func (b *Bundle) KubernetesClient(now time.Time, commonName string, ttl time.Duration) (ClientPair, error) {
	return b.client("Kubernetes", b.talos.Certs.K8s, now, commonName, ttl)
}

func (b *Bundle) client(of string, signer *x509.PEMEncodedCertificateAndKey, now time.Time, commonName string, ttl time.Duration) (ClientPair, error) {
	authority, err := x509.NewCertificateAuthorityFromCertificateAndKey(signer)
	if err != nil {
		return ClientPair{}, fmt.Errorf("read the %s authority of the %s: %w", of, b, err)
	}
	pair, err := x509.NewKeyPair(authority,
		x509.CommonName(commonName),
		x509.NotBefore(now.Add(-clockSkew)),
		x509.NotAfter(now.Add(ttl)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	)
	if err != nil {
		return ClientPair{}, fmt.Errorf("issue a %s client certificate for %s: %w", of, commonName, err)
	}
	return ClientPair{CA: signer.Crt, Certificate: pair.CrtPEM, Key: pair.KeyPEM}, nil
}
