// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	// maxResources is how many resources of a type are read. The largest kind, links of a node with many pods, has some
	// hundreds.
	maxResources = 4096
	// maxListBytes bounds a list's size in bytes.
	maxListBytes = 16 << 20
)

var unsupportedType = regexp.MustCompile(`^resource (type|namespace) .* is not supported`)

// reader reads a node's resources. It is no more than the two calls, bounded: the machinery's own client collects lists
// of any length.
type reader struct{ client cosi.StateClient }

// getRaw reads one resource; nil if there is none, or if this version of Talos doesn't know the type.
func (r reader) getRaw(ctx context.Context, namespace resource.Namespace, kind resource.Type, id resource.ID) (*cosi.Resource, error) {
	answer, err := r.client.Get(ctx, &cosi.GetRequest{Namespace: namespace, Type: kind, Id: id, Options: &cosi.GetOptions{}})
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", kind, id, err)
	}
	return answer.GetResource(), nil
}

// get reads one resource into its type; nil if there is none.
func get[T resource.Resource](ctx context.Context, r reader, namespace resource.Namespace, kind resource.Type, id resource.ID) (T, error) {
	var none T
	raw, err := r.getRaw(ctx, namespace, kind, id)
	if raw == nil || err != nil {
		return none, err
	}
	return decode[T](raw)
}

// list reads all resources of a type; empty if there are none, or if this version of Talos doesn't know the type.
func list[T resource.Resource](ctx context.Context, r reader, namespace resource.Namespace, kind resource.Type) ([]T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream where reading stops early
	stream, err := r.client.List(ctx, &cosi.ListRequest{Namespace: namespace, Type: kind, Options: &cosi.ListOptions{}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	var items []T
	for size := 0; ; {
		answer, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return items, nil
		case absent(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		if size += proto.Size(answer); size > maxListBytes || len(items) == maxResources {
			return nil, fmt.Errorf("%s: the machine lists more than %d resources or %d MiB", kind, maxResources, maxListBytes>>20)
		}
		item, err := decode[T](answer.GetResource())
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
}

// absent tells that a resource isn't there. An unknown type is PermissionDenied "resource type … is not supported".
// Source: Talos, internal/app/resources/access.go; recorded from nodes of 1.12 and 1.13.
func absent(err error) bool {
	switch status.Code(err) {
	case codes.NotFound:
		return true
	case codes.PermissionDenied:
		return unsupportedType.MatchString(status.Convert(err).Message())
	default:
		return false
	}
}

// decode turns what came over the wire into a resource of type T.
func decode[T resource.Resource](raw *cosi.Resource) (out T, err error) {
	kind := raw.GetMetadata().GetType()
	defer func() {
		if cause := recover(); cause != nil { // decoders work by reflection on bytes that anybody may have sent
			err = fmt.Errorf("%s: what the machine sent can't be decoded", clean(kind))
		}
	}()
	wrapped, err := protobuf.Unmarshal(raw)
	if err != nil {
		return out, fmt.Errorf("%s: %w", clean(kind), err)
	}
	decoded, err := protobuf.UnmarshalResource(wrapped)
	if err != nil {
		return out, fmt.Errorf("%s: %w", clean(kind), err)
	}
	item, ok := decoded.(T)
	if !ok {
		return out, fmt.Errorf("%s: the machine sent another type than it was asked for", clean(kind))
	}
	return item, nil
}
