// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// oneToOne are the services that answer for one node only and refuse the metadata "nodes" (Talos: api.TalosAPIdOne2ManyAPIs
// lists the others).
var oneToOne = []string{"/cosi.resource.State/", "/machine.ImageService/", "/machine.LifecycleService/", "/machine.DebugService/"}

// route judges the metadata with which a client asks one node to pass a call on. A hollow node passes nothing on: it
// answers what is meant for itself and refuses the rest in Talos' words. In maintenance the metadata is ignored.
func (b *boot) route(ctx context.Context, method string) error {
	if !b.configured() {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	targets := slices.Concat(md.Get("node"), md.Get("nodes"))
	if len(md.Get("nodes")) > 0 && slices.ContainsFunc(oneToOne, func(service string) bool { return strings.HasPrefix(method, service) }) {
		return status.Error(codes.InvalidArgument, fmt.Sprintf("one-2-many proxying is not supported for method %s", method))
	}
	for _, target := range targets {
		if a, err := netip.ParseAddr(target); err == nil && a == b.address().Addr() {
			continue
		}
		return status.Error(codes.PermissionDenied, "no request forwarding")
	}
	return nil
}

func (b *boot) routeUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := b.route(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (b *boot) routeStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := b.route(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return handler(srv, stream)
}
