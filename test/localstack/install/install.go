// SPDX-License-Identifier: Apache-2.0

// Package install puts Ichor's manifests into the cluster of a local stack, changed only in where the kube-apiserver
// finds ichor-apiserver: at a port of localhost instead of pods. It waits until the aggregation layer serves the API.
package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"maesh.dev/ichor/artifacts"
)

const (
	// FieldManager owns what is applied.
	FieldManager = "ichor-localstack"
	// retryEvery and retryFor bound how long a kube-apiserver that has just started may refuse.
	retryEvery = 250 * time.Millisecond
	retryFor   = time.Minute
)

// resources are the kinds that Ichor's manifests hold. A fixed table needs no discovery, which an aggregated API that
// is not served yet would disturb.
var resources = map[schema.GroupKind]resource{
	{Kind: "Namespace"}:      {"namespaces", false},
	{Kind: "ServiceAccount"}: {"serviceaccounts", true},
	{Kind: "Service"}:        {"services", true},
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:               {"roles", true},
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:        {"rolebindings", true},
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:        {"clusterroles", false},
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}: {"clusterrolebindings", false},
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:            {"apiservices", false},
}

type resource struct {
	name       string
	namespaced bool
}

// Accounts applies everything that ichor-apiserver and ichor-controller need before they can start: the namespace, the
// ServiceAccounts and the roles.
func Accounts(ctx context.Context, config *rest.Config) error {
	return applyWhere(ctx, config, func(kind string) bool { return kind != "Service" && kind != "APIService" })
}

// API registers the API, served on a port of localhost. Whom to trust there is ichor-controller's part.
func API(ctx context.Context, config *rest.Config, port int) error {
	objects, err := artifacts.Install()
	if err != nil {
		return err
	}
	var changed []*unstructured.Unstructured
	for _, object := range objects {
		switch object.GetKind() {
		case "Service":
			// Endpoints on loopback addresses are refused by validation; an external name isn't.
			object.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
		case "APIService":
			if err := pointTo(object, port); err != nil {
				return err
			}
		default:
			continue
		}
		changed = append(changed, object)
	}
	return apply(ctx, config, changed)
}

func pointTo(service *unstructured.Unstructured, port int) error {
	if err := unstructured.SetNestedField(service.Object, int64(port), "spec", "service", "port"); err != nil {
		return fmt.Errorf("port of the APIService: %w", err)
	}
	return nil
}

func applyWhere(ctx context.Context, config *rest.Config, wanted func(kind string) bool) error {
	objects, err := artifacts.Install()
	if err != nil {
		return err
	}
	var chosen []*unstructured.Unstructured
	for _, object := range objects {
		if wanted(object.GetKind()) {
			chosen = append(chosen, object)
		}
	}
	return apply(ctx, config, chosen)
}

// apply applies objects in order. A kube-apiserver that has just started refuses for a while: its own bootstrap roles
// and namespaces come after it is ready.
func apply(ctx context.Context, config *rest.Config, objects []*unstructured.Unstructured) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client for installing Ichor: %w", err)
	}
	for _, object := range objects {
		var last error
		err := wait.PollUntilContextTimeout(ctx, retryEvery, retryFor, true, func(ctx context.Context) (bool, error) {
			last = applyOne(ctx, client, object)
			if apierrors.IsInvalid(last) || apierrors.IsBadRequest(last) {
				return false, last
			}
			return last == nil, nil
		})
		if err != nil {
			return fmt.Errorf("install %s %s: %w", object.GetKind(), object.GetName(), errors.Join(err, last))
		}
	}
	return nil
}

func applyOne(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	r, known := resources[kind.GroupKind()]
	if !known {
		return fmt.Errorf("kind %s is not in the table of this package; add it there", kind)
	}
	target := client.Resource(kind.GroupVersion().WithResource(r.name))
	var at dynamic.ResourceInterface = target
	if r.namespaced {
		at = target.Namespace(object.GetNamespace())
	}
	_, err := at.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	return err
}

// WaitAvailable waits until the kube-apiserver says that it reaches ichor-apiserver. ctx bounds the wait.
func WaitAvailable(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client for the APIService: %w", err)
	}
	services := client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	last := "no answer yet"
	err = wait.PollUntilContextCancel(ctx, retryEvery, true, func(ctx context.Context) (bool, error) {
		service, err := services.Get(ctx, artifacts.APIServiceName, metav1.GetOptions{})
		if err != nil {
			last = err.Error()
			return false, nil
		}
		available, message := availability(service)
		if message != "" {
			last = message
		}
		return available, nil
	})
	if err != nil {
		return fmt.Errorf("wait until APIService %s is available: %w; it says: %s", artifacts.APIServiceName, err, last)
	}
	return nil
}

// availability reads the condition Available.
func availability(service *unstructured.Unstructured) (available bool, message string) {
	conditions, _, err := unstructured.NestedSlice(service.Object, "status", "conditions")
	if err != nil {
		return false, err.Error()
	}
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if condition["type"] == "Available" {
			text, _ := condition["message"].(string)
			return condition["status"] == string(metav1.ConditionTrue), text
		}
	}
	return false, ""
}

// Bind gives a person one of Ichor's roles.
func Bind(ctx context.Context, config *rest.Config, person, role string) error {
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1",
		"kind":       "ClusterRoleBinding",
		"metadata":   map[string]any{"name": "localstack-" + person},
		"roleRef":    map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
		"subjects":   []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": person}},
	}}
	return apply(ctx, config, []*unstructured.Unstructured{binding})
}
