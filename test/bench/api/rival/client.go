// SPDX-License-Identifier: Apache-2.0

package rival

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

var groupVersion = schema.GroupVersion{Group: Group, Version: Version}

// client is a typed client of the custom resources, without a limit of its own.
type client struct{ rest *rest.RESTClient }

// NewClusters returns a typed client of the rival's clusters.
func NewClusters(config *rest.Config) (Clusters, error) {
	typed, err := restClient(config)
	return client{typed}, err
}

func restClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(groupVersion, &v1alpha1.TalosCluster{}, &v1alpha1.TalosClusterList{}, &v1alpha1.TalosMachine{}, &v1alpha1.TalosMachineList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &groupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.QPS = -1
	typed, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", groupVersion, err)
	}
	return typed, nil
}

func (c client) Get(ctx context.Context, name string) (*v1alpha1.TalosCluster, error) {
	out := &v1alpha1.TalosCluster{}
	return out, c.rest.Get().Resource("talosclusters").Name(name).Do(ctx).Into(out)
}

func (c client) UpdateStatus(ctx context.Context, cluster *v1alpha1.TalosCluster) (*v1alpha1.TalosCluster, error) {
	out := &v1alpha1.TalosCluster{}
	return out, c.rest.Put().Resource("talosclusters").Name(cluster.Name).SubResource("status").Body(cluster).Do(ctx).Into(out)
}

// LiveCount counts in a list of the approved control planes, asked for each time.
func LiveCount(config *rest.Config) (Count, error) {
	typed, err := restClient(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, cluster string) (int, error) {
		var list v1alpha1.TalosMachineList
		err := typed.Get().Resource("talosmachines").
			Param("fieldSelector", "spec.approvalState=approved,spec.role=controlplane,spec.clusterRef.name="+cluster).Do(ctx).Into(&list)
		return len(list.Items), err
	}, nil
}

// controlPlanes is the informer's index.
const controlPlanes = "controlplanes"

// CachedCount counts in an informer's index; the informer ends with the context.
func CachedCount(ctx context.Context, config *rest.Config) (Count, error) {
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", groupVersion, err)
	}
	informer := dynamicinformer.NewDynamicSharedInformerFactory(dynamicClient, 0).ForResource(groupVersion.WithResource("talosmachines")).Informer()
	if err := informer.SetTransform(trim); err != nil {
		return nil, fmt.Errorf("informer of machines: %w", err)
	}
	if err := informer.AddIndexers(cache.Indexers{controlPlanes: clusterOf}); err != nil {
		return nil, fmt.Errorf("informer of machines: %w", err)
	}
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("informer of machines: %w", ctx.Err())
	}
	return func(_ context.Context, cluster string) (int, error) {
		keys, err := informer.GetIndexer().IndexKeys(controlPlanes, cluster)
		return len(keys), err
	}, nil
}

// trim keeps of a machine what is counted.
func trim(obj any) (any, error) {
	if machine, ok := obj.(*unstructured.Unstructured); ok {
		machine.SetManagedFields(nil)
		unstructured.RemoveNestedField(machine.Object, "status")
	}
	return obj, nil
}

// clusterOf is the cluster of an approved control plane.
func clusterOf(obj any) ([]string, error) {
	machine, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("index machines: got %T", obj)
	}
	state, _, _ := unstructured.NestedString(machine.Object, "spec", "approvalState")
	role, _, _ := unstructured.NestedString(machine.Object, "spec", "role")
	cluster, _, _ := unstructured.NestedString(machine.Object, "spec", "clusterRef", "name")
	if state != string(v1alpha1.ApprovalApproved) || role != string(v1alpha1.RoleControlPlane) {
		return nil, nil
	}
	return []string{cluster}, nil
}
