// SPDX-License-Identifier: Apache-2.0

package trustd_test

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/pem"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/crypto/x509"
	securityapi "github.com/siderolabs/talos/pkg/machinery/api/security"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/test/hollow/kubernetes/configtest"
	"maesh.dev/ichor/test/hollow/kubernetes/pki"
	"maesh.dev/ichor/test/hollow/kubernetes/trustd"
	"maesh.dev/ichor/test/hollow/loopback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts trustd on its real port, at an address that no other test uses.
func serve(t *testing.T, cfg config.Provider) securityapi.SecurityServiceClient {
	t.Helper()

	block, err := loopback.Claim()
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { block.Close() }) //nolint:errcheck // end of the test

	node := pki.Identity{Hostname: "cp-1", Address: block.Addr(1)}

	server, err := trustd.Start(t.Context(), node, func() config.Provider { return cfg })
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(server.Stop)

	pool, err := pki.Pool(pki.Bundle(nil, cfg.Machine().Security().IssuingCA()))
	if err != nil {
		t.Fatal(err)
	}

	conn, err := grpc.NewClient(netip.AddrPortFrom(node.Address, 50001).String(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: pool, MinVersion: tls.VersionTLS13,
	})))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { conn.Close() }) //nolint:errcheck // end of the test

	return securityapi.NewSecurityServiceClient(conn)
}

func request(t *testing.T) []byte {
	t.Helper()

	csr, _, err := x509.NewEd25519CSRAndIdentity(
		x509.CommonName("worker-1"), x509.Organization("os:admin"), x509.DNSNames([]string{"worker-1"}))
	if err != nil {
		t.Fatal(err)
	}

	return csr.X509CertificateRequestPEM
}

func TestAWorkerGetsAServingCertificateWithoutRoles(t *testing.T) {
	t.Parallel()

	cfg := configtest.New(t, "https://127.0.29.1:6443").ControlPlane(t)
	client := serve(t, cfg)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	ctx = metadata.AppendToOutgoingContext(ctx, "token", cfg.Machine().Security().Token())

	response, err := client.Certificate(ctx, &securityapi.CertificateRequest{Csr: request(t)})
	if err != nil {
		t.Fatal(err)
	}

	block, _ := pem.Decode(response.GetCrt())

	certificate, err := stdx509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}

	type facts struct {
		Name  string
		Roles []string
		Uses  []stdx509.ExtKeyUsage
		Hours int
	}

	got := facts{
		certificate.Subject.CommonName, certificate.Subject.Organization, certificate.ExtKeyUsage,
		int(time.Until(certificate.NotAfter).Round(time.Hour).Hours()),
	}
	want := facts{"worker-1", nil, []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}, 24}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("certificate (-want +got):\n%s", diff)
	}

	pool, err := pki.Pool(response.GetCa())
	if err != nil {
		t.Fatal(err)
	}

	if _, err = certificate.Verify(stdx509.VerifyOptions{Roots: pool, DNSName: "worker-1"}); err != nil {
		t.Errorf("verify with the returned CAs: %v", err)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()

	cfg := configtest.New(t, "https://127.0.29.2:6443").ControlPlane(t)
	client := serve(t, cfg)

	for _, test := range []struct {
		name, token string
		csr         []byte
		want        codes.Code
		wantText    string
	}{
		{"no token", "", request(t), codes.Unauthenticated, "missing token"},
		{"another cluster's token", "abcdef.0123456789abcdef", request(t), codes.Unauthenticated, "invalid token"},
		{"not a certificate request", cfg.Machine().Security().Token(), []byte("hello"), codes.InvalidArgument, "failed to decode CSR"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()

			if test.token != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "token", test.token)
			}

			_, err := client.Certificate(ctx, &securityapi.CertificateRequest{Csr: test.csr})

			got := status.Convert(err)
			if got.Code() != test.want || got.Message() != test.wantText {
				t.Errorf("got %s %q, want %s %q", got.Code(), got.Message(), test.want, test.wantText)
			}
		})
	}
}
