// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/registry/slots"
	"maesh.dev/ichor/registry/verbs"
)

// NewStore returns the store of the kind, without the rules that need other objects. AfterDelete is called with each
// machine that is gone for good, to free its slot; it is nil-safe and set by New.
func NewStore(typer runtime.ObjectTyper, options generic.RESTOptionsGetter) (*genericregistry.Store, error) {
	strategy := newStrategy(typer)
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &ichor.TalosMachine{} },
		NewListFunc:               func() runtime.Object { return &ichor.TalosMachineList{} },
		DefaultQualifiedResource:  ichor.Resource("talosmachines"),
		SingularQualifiedResource: ichor.Resource("talosmachine"),
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		ResetFieldsStrategy:       strategy,
		ReturnDeletedObject:       true,
		TableConvertor:            newTableConvertor(),
	}
	complete := &generic.StoreOptions{RESTOptions: options, AttrFunc: GetAttrs}
	indexed(&complete.Indexers)
	return store, store.CompleteWithOptions(complete)
}

// Dependencies are what the rules of machines need besides their own store.
type Dependencies struct {
	// Store reads and writes across kinds, below the strategies.
	Store slots.Store
	// Gate takes and frees control-plane slots.
	Gate *slots.Gate
	// Checker asks for Ichor's own verbs.
	Checker verbs.Checker
	// Released is called when a machine that may hold a slot is gone for good.
	Released func(cluster string, machine types.UID)
	// Histories keeps what was rendered for machines, as long as they are there.
	Histories *Histories
}

// Storage holds the REST storage of the resource and its subresources.
type Storage struct {
	Machine  *REST
	Status   *StatusREST
	Approval *ApprovalREST
	Identity *IdentityREST
	Finalize *FinalizeREST

	histories *Histories
}

// New builds the REST storage over the store.
func New(typer runtime.ObjectTyper, store *genericregistry.Store, deps Dependencies) *Storage {
	main := *store
	main.AfterDelete = func(obj runtime.Object, options *metav1.DeleteOptions) {
		released(obj, options, deps.Released)
		deps.Histories.forget(obj, options)
	}
	base := newStrategy(typer)
	sub := func(update interface {
		rest.RESTUpdateStrategy
		rest.ResetFieldsStrategy
	},
	) subresource {
		copied := main
		copied.UpdateStrategy, copied.ResetFieldsStrategy = update, update
		return subresource{store: &copied}
	}
	reader := factsReader{store: deps.Store, machines: &main, stored: &newest{}}
	return &Storage{
		Machine:  &REST{Store: &main, reader: reader, checker: deps.Checker},
		Status:   &StatusREST{sub(statusStrategy{base})},
		Finalize: &FinalizeREST{sub(finalizeStrategy{base})},
		Approval: &ApprovalREST{subresource: sub(approvalStrategy{base}), reader: reader, gate: deps.Gate, checker: deps.Checker},
		Identity: &IdentityREST{subresource: sub(identityStrategy{base}), reader: reader, checker: deps.Checker},

		histories: deps.Histories,
	}
}

// released tells that a machine which could hold a slot is gone.
func released(obj runtime.Object, options *metav1.DeleteOptions, notify func(string, types.UID)) {
	machine, ok := obj.(*ichor.TalosMachine)
	if !ok || notify == nil || (options != nil && len(options.DryRun) > 0) || machine.Spec.ClusterRef.Name == "" {
		return
	}
	notify(machine.Spec.ClusterRef.Name, machine.UID)
}

// subresource is a door to the store with a strategy of its own. It shares the store, so it doesn't destroy it.
type subresource struct {
	store *genericregistry.Store
}

// New returns an empty machine.
func (subresource) New() runtime.Object { return &ichor.TalosMachine{} }

// Destroy does nothing: the store belongs to the main resource.
func (subresource) Destroy() {}

// Get reads the machine, which patching needs.
func (s subresource) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Strategy is how the door changes objects.
func (s subresource) Strategy() rest.RESTUpdateStrategy { return s.store.UpdateStrategy }

// GetResetFields are the fields that this door doesn't change.
func (s subresource) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.store.GetResetFields()
}

// ConvertToTable prints a machine.
func (s subresource) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return s.store.ConvertToTable(ctx, obj, options)
}

// StatusREST is talosmachines/status.
type StatusREST struct{ subresource }

// FinalizeREST is talosmachines/finalize.
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

// Update changes the finalizers. Taking away the last one of a machine that is being deleted ends it.
func (r *FinalizeREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, objInfo, createValidation, updateValidation, false, options)
}
