// SPDX-License-Identifier: Apache-2.0

package cosi

import (
	"context"
	"fmt"
	"strings"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/test/hollow/access"
)

// Server serves the state as Talos does (Talos: internal/app/resources/access.go): nobody writes, unknown types and
// namespaces are refused, sensitive types need os:admin.
func (s *Store) Server() v1alpha1.StateServer {
	return server.NewState(state.Filter(s.state, s.policy))
}

func (s *Store) policy(ctx context.Context, a state.Access) error {
	if !a.Verb.Readonly() {
		return status.Error(codes.PermissionDenied, "write access is not allowed")
	}
	definition, err := safe.StateGet[*meta.ResourceDefinition](ctx, s.state,
		resource.NewMetadata(meta.NamespaceName, meta.ResourceDefinitionType, strings.ToLower(a.ResourceType), resource.VersionUndefined))
	if err != nil {
		return unsupported(err, "resource type %q is not supported", a.ResourceType)
	}
	if definition.TypedSpec().Sensitivity == meta.Sensitive && !access.Roles(ctx).Includes(role.Admin) {
		return access.ErrNotAuthorized
	}
	if _, err := safe.StateGet[*meta.Namespace](ctx, s.state,
		resource.NewMetadata(meta.NamespaceName, meta.NamespaceType, a.ResourceNamespace, resource.VersionUndefined)); err != nil {
		return unsupported(err, "namespace %q is not supported", a.ResourceNamespace)
	}
	return nil
}

func unsupported(err error, format, what string) error {
	if state.IsNotFoundError(err) {
		return status.Error(codes.PermissionDenied, fmt.Sprintf(format, what))
	}
	return err
}
