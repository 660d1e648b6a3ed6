// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"maesh.dev/ichor/pkg/apis/ichor/expression"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// GatesRoleLabel on a ClusterRole, with the value "true", gives its rules to ichor-controller: artifacts/install.
const GatesRoleLabel = "ichor.maesh.dev/aggregate-to-gates"

// checkObject reads the object and asks the expression.
func (c Checker) checkObject(ctx context.Context, gate *v1alpha1.CELGate) (Result, error) {
	compiled, err := expression.Compile(gate.Expression)
	if err != nil {
		return refused("the expression %q can't be used: %s", gate.Expression, quote(err)), nil
	}
	what := gate.Kind + " " + gate.Name
	if gate.Namespace != "" {
		what = gate.Kind + " " + gate.Namespace + "/" + gate.Name
	}
	kind, result, err := c.findKind(ctx, gate)
	if err != nil || result.State != "" {
		return result, err
	}
	object, err := c.read(ctx, kind, gate)
	switch {
	case apierrors.IsNotFound(err):
		return waiting("there is no %s", what), nil
	case refusedToUs(err):
		resource := schema.GroupResource{Group: kind.Group, Resource: kind.Name}
		return waiting("ichor-controller may not get %s: an administrator can give a ClusterRole with apiGroups [%q], resources [%s] and verbs [get] the label %s=true",
			resource, kind.Group, kind.Name, GatesRoleLabel), nil
	case err != nil:
		return Result{}, fmt.Errorf("read %s: %w", what, err)
	}
	holds, err := compiled.Holds(ctx, object)
	var never *expression.NeverError
	var yet *expression.YetError
	switch {
	case errors.As(err, &never):
		return refused("the expression %q on %s: %s", gate.Expression, what, never), nil
	case errors.As(err, &yet):
		return waiting("the expression %q on %s: %s", gate.Expression, what, yet), nil
	case err != nil:
		return Result{}, err
	case !holds:
		return waiting("%q isn't true of %s", gate.Expression, what), nil
	}
	return Result{State: Opened}, nil
}

// findKind asks the API each time which resource a kind is: one small request, and nothing that could be out of date
// when the kind's definition is installed, replaced or removed. The result is empty if it was found.
func (c Checker) findKind(ctx context.Context, gate *v1alpha1.CELGate) (metav1.APIResource, Result, error) {
	var none metav1.APIResource
	version, err := schema.ParseGroupVersion(gate.APIVersion)
	if err != nil {
		return none, refused("apiVersion %q: %s", gate.APIVersion, quote(err)), nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := discovery.ToServerResourcesInterfaceWithContext(c.Kubernetes.Discovery()).ServerResourcesForGroupVersionWithContext(ctx, gate.APIVersion)
	switch {
	case apierrors.IsNotFound(err):
		return none, waiting("the cluster has no API %s; is what brings the %s installed?", gate.APIVersion, gate.Kind), nil
	case err != nil:
		return none, Result{}, fmt.Errorf("ask which kinds %s has: %w", gate.APIVersion, err)
	}
	at := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Kind == gate.Kind && !strings.Contains(r.Name, "/") && (len(r.Verbs) == 0 || slices.Contains(r.Verbs, "get"))
	})
	if at < 0 {
		return none, waiting("%s has no kind %s that can be read", gate.APIVersion, gate.Kind), nil
	}
	kind := list.APIResources[at]
	kind.Group, kind.Version = version.Group, version.Version
	switch {
	case kind.Namespaced && gate.Namespace == "":
		return none, refused("a %s belongs to a namespace, and the gate names none", gate.Kind), nil
	case !kind.Namespaced && gate.Namespace != "":
		return none, refused("a %s belongs to no namespace, and the gate names %s", gate.Kind, gate.Namespace), nil
	}
	return kind, Result{}, nil
}

func (c Checker) read(ctx context.Context, kind metav1.APIResource, gate *v1alpha1.CELGate) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resource := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: kind.Name}
	object, err := c.Objects.Resource(resource).Namespace(gate.Namespace).Get(ctx, gate.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return object.UnstructuredContent(), nil
}
