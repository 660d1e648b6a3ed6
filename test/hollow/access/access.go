// SPDX-License-Identifier: Apache-2.0

// Package access decides who may call what on a hollow node: roles from the peer (a certificate's organizations, or
// os:reader in maintenance), and the table of methods.
package access

import (
	"context"

	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// ErrNotAuthorized is what Talos answers to a caller without a role that the method takes.
var ErrNotAuthorized = status.Error(codes.PermissionDenied, "not authorized")

type rolesKey struct{}

// Roles are the caller's roles; none if no interceptor ran.
func Roles(ctx context.Context) role.Set {
	roles, ok := ctx.Value(rolesKey{}).(role.Set)
	if !ok {
		return role.Zero
	}
	return roles
}

// Injector tells the roles of a peer.
type Injector func(ctx context.Context) role.Set

// Maintenance gives every peer os:reader: there is no certificate to read a role from (Talos:
// pkg/grpc/middleware/authz/injector.go, mode ReadOnlyWithAdminOnSiderolink; a hollow node has no SideroLink).
func Maintenance(context.Context) role.Set { return role.MakeSet(role.Reader) }

// Certificate reads the roles from the organizations of the verified client certificate; unknown ones are dropped.
func Certificate(ctx context.Context) role.Set {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return role.Zero
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return role.Zero
	}
	roles, _ := role.Parse(info.State.PeerCertificates[0].Subject.Organization)
	return roles
}

// Authorize checks the roles against the table; a method that is not in it is for os:admin.
func Authorize(roles role.Set, method string) error {
	allowed, known := rules[method]
	if !known {
		allowed = role.MakeSet(role.Admin)
	}
	if !allowed.IncludesAny(roles) {
		return ErrNotAuthorized
	}
	return nil
}

// Unary puts the roles into the context and refuses who has none that the method takes.
func (i Injector) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := Authorize(i(ctx), info.FullMethod); err != nil {
		return nil, err
	}
	return i.UnaryUnchecked(ctx, req, info, handler)
}

// UnaryUnchecked puts the roles into the context and leaves the rest to the handlers, as the maintenance server of Talos up
// to 1.12 does.
func (i Injector) UnaryUnchecked(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(context.WithValue(ctx, rolesKey{}, i(ctx)), req)
}

// Stream is Unary for streams.
func (i Injector) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := Authorize(i(stream.Context()), info.FullMethod); err != nil {
		return err
	}
	return i.StreamUnchecked(srv, stream, info, handler)
}

// StreamUnchecked is UnaryUnchecked for streams.
func (i Injector) StreamUnchecked(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := stream.Context()
	return handler(srv, &streamWithRoles{ServerStream: stream, ctx: context.WithValue(ctx, rolesKey{}, i(ctx))})
}

type streamWithRoles struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // grpc.ServerStream is asked for its context
}

func (s *streamWithRoles) Context() context.Context { return s.ctx }
