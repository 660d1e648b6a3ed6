// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"testing"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"maesh.dev/ichor/test/hollow/hollowtest"
)

// serverAndClientCertificate is an admin's certificate that may also be a server's.
func serverAndClientCertificate(t *testing.T, c *hollowtest.Cluster) tls.Certificate {
	t.Helper()
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(c.Bundle.Certs.OS)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := x509.NewKeyPair(ca, x509.Organization(string(role.Admin)),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth, stdx509.ExtKeyUsageServerAuth}))
	if err != nil {
		t.Fatal(err)
	}
	return *pair.Certificate
}
