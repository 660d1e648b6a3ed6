// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	stdx509 "crypto/x509"

	"github.com/siderolabs/crypto/x509"
	securityapi "github.com/siderolabs/talos/pkg/machinery/api/security"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// trustdTimeout bounds one question to one control plane (Talos: pkg/grpc/gen/remote.go).
const trustdTimeout = 10 * time.Second

// Issued is a worker's certificate with the CAs that trustd says are accepted.
type Issued struct {
	Certificate *tls.Certificate
	Clients     *stdx509.CertPool
}

// AskTrustd has a worker's server certificate signed by the first control plane that answers. Each endpoint is asked
// once; the caller decides when to try again.
func (a Authority) AskTrustd(ctx context.Context, endpoints []string, sans SANs) (*Issued, error) {
	if len(a.Accepted) == 0 {
		return nil, errors.New("ask trustd: the configuration has no Talos CA")
	}
	if len(endpoints) == 0 {
		return nil, errors.New("ask trustd: no control plane is known yet")
	}
	template, err := a.Accepted[len(a.Accepted)-1].GetCert()
	if err != nil {
		return nil, fmt.Errorf("read the Talos CA: %w", err)
	}
	csr, key, err := x509.NewCSRAndIdentityFromCA(template,
		x509.IPAddresses(sans.ips()), x509.DNSNames(sans.DNSNames), x509.CommonName(sans.FQDN))
	if err != nil {
		return nil, fmt.Errorf("make the certificate request: %w", err)
	}
	pool, err := a.Pool()
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, endpoint := range endpoints {
		reply, err := a.askOne(ctx, endpoint, pool, csr.X509CertificateRequestPEM)
		if err != nil {
			failures = append(failures, fmt.Errorf("trustd on %s: %w", endpoint, err))
			continue
		}
		return issued(reply, key.Key)
	}
	return nil, errors.Join(failures...)
}

func (a Authority) askOne(ctx context.Context, endpoint string, pool *stdx509.CertPool, csr []byte) (*securityapi.CertificateResponse, error) {
	conn, err := grpc.NewClient("passthrough:///"+joinPort(endpoint),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13})),
		grpc.WithPerRPCCredentials(tokenCredentials(a.Token)),
		grpc.WithNoProxy(),
	)
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing is pending
	ctx, cancel := context.WithTimeout(ctx, trustdTimeout)
	defer cancel()
	return securityapi.NewSecurityServiceClient(conn).Certificate(ctx, &securityapi.CertificateRequest{Csr: csr})
}

func joinPort(host string) string {
	if a, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(a, constants.TrustdPort).String()
	}
	return host + ":" + strconv.Itoa(constants.TrustdPort)
}

func issued(reply *securityapi.CertificateResponse, key []byte) (*Issued, error) {
	pair, err := tls.X509KeyPair(reply.GetCrt(), key)
	if err != nil {
		return nil, fmt.Errorf("certificate from trustd: %w", err)
	}
	clients := stdx509.NewCertPool()
	if !clients.AppendCertsFromPEM(reply.GetCa()) {
		return nil, errors.New("certificate from trustd: the answer has no CA")
	}
	return &Issued{Certificate: &pair, Clients: clients}, nil
}

// tokenCredentials send .machine.token with each call, over TLS only.
type tokenCredentials string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t tokenCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"token": string(t)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (tokenCredentials) RequireTransportSecurity() bool { return true }
