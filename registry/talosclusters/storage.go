// SPDX-License-Identifier: Apache-2.0

package talosclusters

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/registry/verbs"
)

// NewStore returns the store of the kind, without the rules that need other objects.
func NewStore(typer runtime.ObjectTyper, options generic.RESTOptionsGetter) (*genericregistry.Store, error) {
	strategy := newStrategy(typer)
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &ichor.TalosCluster{} },
		NewListFunc:               func() runtime.Object { return &ichor.TalosClusterList{} },
		DefaultQualifiedResource:  ichor.Resource("talosclusters"),
		SingularQualifiedResource: ichor.Resource("taloscluster"),
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		ResetFieldsStrategy:       strategy,
		ReturnDeletedObject:       true,
		TableConvertor:            newTableConvertor(),
	}
	return store, store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: options, AttrFunc: GetAttrs})
}

// Dependencies are what the rules of clusters need besides their own store.
type Dependencies struct {
	// Checker asks for Ichor's own verbs.
	Checker verbs.Checker
	// Machines returns all machines, at least as new as the call.
	Machines func(context.Context) ([]ichor.TalosMachine, error)
}

// Storage holds the REST storage of the resource and its subresources.
type Storage struct {
	Cluster  *REST
	Status   *StatusREST
	Finalize *FinalizeREST
}

// New builds the REST storage over the store.
func New(typer runtime.ObjectTyper, store *genericregistry.Store, deps Dependencies) *Storage {
	base := newStrategy(typer)
	sub := func(update interface {
		rest.RESTUpdateStrategy
		rest.ResetFieldsStrategy
	},
	) subresource {
		copied := *store
		copied.UpdateStrategy, copied.ResetFieldsStrategy = update, update
		return subresource{store: &copied}
	}
	return &Storage{
		Cluster:  &REST{Store: store, deps: deps},
		Status:   &StatusREST{sub(statusStrategy{base})},
		Finalize: &FinalizeREST{sub(finalizeStrategy{base})},
	}
}

// subresource is a door to the store with a strategy of its own. It shares the store, so it doesn't destroy it.
type subresource struct {
	store *genericregistry.Store
}

// New returns an empty cluster.
func (subresource) New() runtime.Object { return &ichor.TalosCluster{} }

// Destroy does nothing: the store belongs to the main resource.
func (subresource) Destroy() {}

// Get reads the cluster, which patching needs.
func (s subresource) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Strategy is how the door changes objects.
func (s subresource) Strategy() rest.RESTUpdateStrategy { return s.store.UpdateStrategy }

// GetResetFields are the fields that this door doesn't change.
func (s subresource) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.store.GetResetFields()
}

// ConvertToTable prints a cluster.
func (s subresource) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return s.store.ConvertToTable(ctx, obj, options)
}

// StatusREST is talosclusters/status.
type StatusREST struct{ subresource }

// FinalizeREST is talosclusters/finalize.
type FinalizeREST struct{ subresource }

var (
	_ rest.Patcher = &StatusREST{}
	_ rest.Patcher = &FinalizeREST{}
)

// Update changes the status.
func (r *StatusREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, objInfo, createValidation, updateValidation, false, options)
}

// Update changes the finalizers. Taking away the last one of a cluster that is being deleted ends it.
func (r *FinalizeREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, objInfo, createValidation, updateValidation, false, options)
}
