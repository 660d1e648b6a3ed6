// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// methods are all methods of Talos' API, trustd's included, which apid must not serve.
func methods() []protoreflect.MethodDescriptor {
	var list []protoreflect.MethodDescriptor
	for _, file := range api.AllAPIs() {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				list = append(list, service.Methods().Get(j))
			}
		}
	}
	return list
}

// path is /service/Method.
func path(m protoreflect.MethodDescriptor) string {
	return fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
}

func dial(address netip.Addr, cfg *tls.Config) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+netip.AddrPortFrom(address, 50000).String(),
		grpc.WithTransportCredentials(credentials.NewTLS(cfg)), grpc.WithNoProxy())
}

// call sends an empty request and tells the answer as the recordings do: OK, or code and text. Of a stream the first
// message counts.
func call(ctx context.Context, conn *grpc.ClientConn, m protoreflect.MethodDescriptor) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request, reply := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	var err error
	if m.IsStreamingClient() || m.IsStreamingServer() {
		err = callStream(ctx, conn, m, request, reply)
	} else {
		err = conn.Invoke(ctx, path(m), request, reply)
	}
	if err == nil {
		return "OK"
	}
	s := status.Convert(err)
	return s.Code().String() + ": " + s.Message()
}

func callStream(ctx context.Context, conn *grpc.ClientConn, m protoreflect.MethodDescriptor, request, reply any) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: m.IsStreamingServer(), ClientStreams: m.IsStreamingClient()}, path(m))
	if err != nil {
		return err
	}
	// A refused stream may be closed by now; the reason comes with the receive.
	if err := stream.SendMsg(request); err == nil {
		if err := stream.CloseSend(); err != nil {
			return err
		}
	}
	return stream.RecvMsg(reply)
}
