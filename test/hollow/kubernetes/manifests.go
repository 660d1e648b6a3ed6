// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"maesh.dev/ichor/test/hollow/kubernetes/connection"
	"maesh.dev/ichor/test/hollow/kubernetes/controlplane"
)

const (
	probeTimeout = 3 * time.Second
	// maxProbeBytes bounds what is read of a health endpoint's answer.
	maxProbeBytes = 64 << 10
)

// applyManifests applies Talos' manifests by server-side apply, in order. One that fails doesn't keep the others back.
func applyManifests(ctx context.Context, admin *connection.Connection, cluster clusterConfig) error {
	objects, err := controlplane.Manifests(cluster)
	if err != nil {
		return err
	}

	discoverer, err := discovery.NewDiscoveryClientForConfigAndClient(admin.Config, admin.HTTP)
	if err != nil {
		return fmt.Errorf("make discovery client: %w", err)
	}

	client, err := dynamic.NewForConfigAndClient(admin.Config, admin.HTTP)
	if err != nil {
		return fmt.Errorf("make dynamic client: %w", err)
	}

	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoverer))

	var failures []error

	for _, object := range objects {
		kind := object.GroupVersionKind()
		name := fmt.Sprintf("%s %s", kind.Kind, object.GetName())

		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			failures = append(failures, fmt.Errorf("find resource of %s: %w", name, err))

			continue
		}

		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)

		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			namespace := object.GetNamespace()
			if namespace == "" {
				namespace = metav1.NamespaceDefault
			}

			resource = client.Resource(mapping.Resource).Namespace(namespace)
		}

		_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{
			FieldManager: constants.KubernetesFieldManagerName, Force: true,
		})
		if err != nil {
			failures = append(failures, fmt.Errorf("apply %s: %w", name, err))
		}
	}

	return errors.Join(failures...)
}

// probe reads a health endpoint.
func probe(ctx context.Context, admin *connection.Connection, url string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("probe %s: %w", url, err)
	}

	response, err := admin.HTTP.Do(request)
	if err != nil {
		return fmt.Errorf("probe %s: %w", url, err)
	}

	defer response.Body.Close() //nolint:errcheck // reading only

	if _, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxProbeBytes)); err != nil {
		return fmt.Errorf("probe %s: %w", url, err)
	}

	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("probe %s: %s", url, response.Status)
	}

	return nil
}
