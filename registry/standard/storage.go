// SPDX-License-Identifier: Apache-2.0

package standard

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// Storage is the storage of a kind.
type Storage[T Object, S, U any] struct {
	// Main is the resource itself.
	Main *REST[T]
	// Status is the subresource "status".
	Status *Door[T]

	base strategy[T, S, U]
}

// New builds the storage of a kind.
func New[T Object, S, U any](typer runtime.ObjectTyper, options generic.RESTOptionsGetter, kind Kind[T, S, U]) (*Storage[T, S, U], error) {
	base := newStrategy(typer, &kind)
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return kind.New() },
		NewListFunc:               kind.NewList,
		DefaultQualifiedResource:  ichor.Resource(kind.Resource),
		SingularQualifiedResource: ichor.Resource(kind.Singular),
		CreateStrategy:            base,
		UpdateStrategy:            base,
		DeleteStrategy:            base,
		ResetFieldsStrategy:       base,
		ReturnDeletedObject:       true,
		TableConvertor:            newTableConvertor(&kind),
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: options, AttrFunc: kind.attrs}); err != nil {
		return nil, fmt.Errorf("build storage of %s: %w", kind.Resource, err)
	}
	s := &Storage[T, S, U]{Main: &REST[T]{Store: store, guard: kind.Guard, tried: kind.Tried, shortNames: kind.ShortNames}, base: base}
	status := statusStrategy[T, S, U]{base}
	copied := s.through(status)
	copied.ResetFieldsStrategy = status
	s.Status = &Door[T]{subresource[T]{store: copied}}
	return s, nil
}

// Part is a door for a part of the spec.
func (s *Storage[T, S, U]) Part(part Part[T, S, U]) *PartDoor[T] {
	store := s.through(partStrategy[T, S, U]{strategy: s.base, part: part})
	return &PartDoor[T]{subresource: subresource[T]{store: store, update: part.Guard}, taken: part.Taken}
}

// through is the store with another strategy for updates.
func (s *Storage[T, S, U]) through(strategy rest.RESTUpdateStrategy) *genericregistry.Store {
	copied := *s.Main.Store
	copied.UpdateStrategy, copied.ResetFieldsStrategy = strategy, nil
	return &copied
}

// REST is the main resource of a kind.
type REST[T Object] struct {
	*genericregistry.Store
	guard      Guard[T]
	tried      func(ctx context.Context, obj, old T)
	shortNames []string
}

var (
	_ rest.StandardStorage    = &REST[Object]{}
	_ rest.ShortNamesProvider = &REST[Object]{}
	_ rest.CategoriesProvider = &REST[Object]{}
)

// Strategy is how the resource changes objects.
func (r *REST[T]) Strategy() rest.RESTUpdateStrategy { return r.UpdateStrategy }

// ShortNames is what people type.
func (r *REST[T]) ShortNames() []string { return r.shortNames }

// Categories puts the kind into "kubectl get ichor".
func (*REST[T]) Categories() []string { return []string{"ichor"} }

// Create makes an object.
func (r *REST[T]) Create(ctx context.Context, obj runtime.Object, createValidation rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	made, err := r.Store.Create(ctx, obj, guarded(createValidation, r.guard.Create), options)
	if err == nil && options != nil {
		r.tell(ctx, options.DryRun, made, nil)
	}
	return made, err
}

// Update changes what people may change. Server-side apply creates through it.
func (r *REST[T]) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	var was runtime.Object
	judged := func(ctx context.Context, obj, old T) error {
		was = old
		if r.guard.Update == nil {
			return nil
		}
		return r.guard.Update(ctx, obj, old)
	}
	obj, created, err := r.Store.Update(ctx, name, objInfo, guarded(createValidation, r.guard.Create), updating(updateValidation, judged), forceAllowCreate, options)
	if err == nil && options != nil {
		r.tell(ctx, options.DryRun, obj, was)
	}
	return obj, created, err
}

// Delete removes an object.
func (r *REST[T]) Delete(ctx context.Context, name string, deleteValidation rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	obj, gone, err := r.Store.Delete(ctx, name, r.deleting(deleteValidation), options)
	if err == nil && options != nil {
		r.tell(ctx, options.DryRun, nil, obj)
	}
	return obj, gone, err
}

// tell tells of a write that was only tried. What isn't an object of the kind is left out.
func (r *REST[T]) tell(ctx context.Context, dryRun []string, obj, old runtime.Object) {
	if r.tried == nil || !dryrun.IsDryRun(dryRun) {
		return
	}
	is, _ := obj.(T)
	was, _ := old.(T)
	r.tried(ctx, is, was)
}

// DeleteCollection removes objects, each by the rules for one.
func (r *REST[T]) DeleteCollection(ctx context.Context, deleteValidation rest.ValidateObjectFunc, options *metav1.DeleteOptions,
	listOptions *metainternalversion.ListOptions,
) (runtime.Object, error) {
	return r.Store.DeleteCollection(ctx, r.deleting(deleteValidation), options, listOptions)
}

// deleting asks the guard unless the deletion was decided before.
func (r *REST[T]) deleting(before rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	if r.guard.Delete == nil {
		return before
	}
	return guarded(before, func(ctx context.Context, obj T) error {
		if obj.GetDeletionTimestamp() != nil {
			return nil
		}
		return r.guard.Delete(ctx, obj)
	})
}

// guarded is a validation followed by a guard, on the final object.
func guarded[T Object](before rest.ValidateObjectFunc, guard func(ctx context.Context, obj T) error) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if before != nil {
			if err := before(ctx, obj); err != nil {
				return err
			}
		}
		if guard == nil {
			return nil
		}
		return guard(ctx, obj.(T))
	}
}

// Refuse is a 403 with its cause for programs.
func Refuse(resource, name string, cause metav1.CauseType, field, message string) error {
	status := apierrors.NewForbidden(ichor.Resource(resource), name, errors.New(message))
	status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause, Message: message, Field: field})
	return status
}
