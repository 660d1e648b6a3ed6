// SPDX-License-Identifier: Apache-2.0

// Package trustd is the service of a control plane that signs the API certificates of workers (Talos:
// internal/app/trustd). A worker shows the machine token of the cluster and gets a certificate that can only serve, never
// authenticate a client.
package trustd

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	stdx509 "crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/siderolabs/crypto/x509"
	securityapi "github.com/siderolabs/talos/pkg/machinery/api/security"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/test/hollow/kubernetes/pki"
)

// maxRequestBytes bounds a request; a certificate request has a few hundred bytes.
const maxRequestBytes = 1 << 20

// Server is a running trustd.
type Server struct {
	securityapi.UnimplementedSecurityServiceServer

	node   pki.Identity
	config func() config.Provider
	server *grpc.Server
	served chan error

	mu sync.Mutex
	// certificate serves until renewAt or until the issuing CA is another one than issuedBy.
	certificate tls.Certificate
	renewAt     time.Time
	issuedBy    string
}

// Start listens on the node's address. The configuration is asked for at every request, so that rotated CAs and tokens
// count at once.
func Start(ctx context.Context, node pki.Identity, config func() config.Provider) (*Server, error) {
	s := &Server{node: node, config: config, served: make(chan error, 1)}

	address := netip.AddrPortFrom(node.Address, constants.TrustdPort).String()

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for trustd: %w", err)
	}

	s.server = grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, GetCertificate: s.serverCertificate,
		})),
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.UnaryInterceptor(s.authenticate),
	)
	securityapi.RegisterSecurityServiceServer(s.server, s)

	go func() { s.served <- s.server.Serve(listener) }()

	return s, nil
}

// Stop ends the server at once.
func (s *Server) Stop() {
	s.server.Stop()
	<-s.served
}

// Certificate signs a worker's request for an API serving certificate.
func (s *Server) Certificate(_ context.Context, request *securityapi.CertificateRequest) (*securityapi.CertificateResponse, error) {
	block, _ := pem.Decode(request.GetCsr())
	if block == nil {
		return nil, status.Error(codes.InvalidArgument, "failed to decode CSR")
	}

	if _, err := stdx509.ParseCertificateRequest(block.Bytes); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "failed to parse CSR: %s", err)
	}

	security := s.config().Machine().Security()

	issuing := security.IssuingCA()
	if issuing == nil || len(issuing.Key) == 0 {
		return nil, status.Error(codes.Internal, "failed to sign CSR: this node has no CA key")
	}

	signed, err := x509.NewCertificateFromCSRBytes(issuing.Crt, issuing.Key, request.GetCsr(),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}),
		x509.NotAfter(time.Now().Add(x509.DefaultCertificateValidityDuration)),
		// Roles are organizations: without one the certificate opens nothing.
		x509.OverrideSubject(func(subject *pkix.Name) { subject.Organization = nil }),
	)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "failed to sign CSR: %s", err)
	}

	return &securityapi.CertificateResponse{
		Ca:  pki.Bundle(security.AcceptedCAs(), issuing),
		Crt: signed.X509CertificatePEM,
	}, nil
}

// authenticate compares the machine token in the metadata (Talos: pkg/grpc/middleware/auth/basic).
func (s *Server) authenticate(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)

	given := md.Get("token")
	if len(given) == 0 {
		return nil, status.Error(codes.Unauthenticated, "missing token")
	}

	// Hashes have one length, so the comparison's time tells nothing about the token.
	got := sha256.Sum256([]byte(given[0]))
	want := sha256.Sum256([]byte(s.config().Machine().Security().Token()))

	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return nil, status.Error(codes.Unauthenticated, "invalid token")
	}

	return handler(ctx, request)
}

// serverCertificate issues trustd's own certificate, anew at half its life and when the CA changed.
func (s *Server) serverCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	security := s.config().Machine().Security()
	issuing := security.IssuingCA()

	if issuing == nil {
		return nil, fmt.Errorf("serve trustd on %s: the machine configuration has no CA", s.node.Address)
	}

	if s.issuedBy == string(issuing.Crt) && time.Now().Before(s.renewAt) {
		return &s.certificate, nil
	}

	pair, err := pki.TalosServer(issuing, s.node, security.CertSANs())
	if err != nil {
		return nil, err
	}

	certificate, err := pki.TLSCertificate(pair)
	if err != nil {
		return nil, err
	}

	s.certificate, s.issuedBy = certificate, string(issuing.Crt)
	s.renewAt = time.Now().Add(x509.DefaultCertificateValidityDuration / 2)

	return &s.certificate, nil
}
