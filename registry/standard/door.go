// SPDX-License-Identifier: Apache-2.0

package standard

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"maesh.dev/ichor/registry/reset"
)

// subresource is a door to a kind's objects, with a strategy of its own. It shares the store, so it doesn't destroy it.
type subresource[T Object] struct {
	store  *genericregistry.Store
	update func(ctx context.Context, obj, old T) error
}

// Door is a subresource of a kind through which a part of its objects is changed, and nothing else.
type Door[T Object] struct{ subresource[T] }

// PartDoor is a Door to a part of the spec.
type PartDoor[T Object] struct {
	subresource[T]
	taken []string
}

var (
	_ rest.Patcher                   = &Door[Object]{}
	_ rest.ResetFieldsStrategy       = &Door[Object]{}
	_ rest.TableConvertor            = &Door[Object]{}
	_ rest.Patcher                   = &PartDoor[Object]{}
	_ rest.ResetFieldsFilterStrategy = &PartDoor[Object]{}
	_ rest.TableConvertor            = &PartDoor[Object]{}
)

// New returns an empty object.
func (s subresource[T]) New() runtime.Object { return s.store.New() }

// Destroy does nothing: the store belongs to the main resource.
func (subresource[T]) Destroy() {}

// Get reads the object, which patching needs.
func (s subresource[T]) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Strategy is how the door changes objects.
func (s subresource[T]) Strategy() rest.RESTUpdateStrategy { return s.store.UpdateStrategy }

// ConvertToTable prints an object.
func (s subresource[T]) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return s.store.ConvertToTable(ctx, obj, options)
}

// Update changes the part of the object that the door is for; it never creates one.
func (s subresource[T]) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, objInfo, createValidation, updating(updateValidation, s.update), false, options)
}

// GetResetFields are the fields that this door doesn't change.
func (d *Door[T]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return d.store.GetResetFields()
}

// GetResetFieldsFilter keeps what whoever comes through this door may own.
func (d *PartDoor[T]) GetResetFieldsFilter() map[fieldpath.APIVersion]fieldpath.Filter {
	return reset.AllBut(d.taken...)
}

// updating is the validation of an update followed by a guard, on the final object.
func updating[T Object](before rest.ValidateObjectUpdateFunc, guard func(ctx context.Context, obj, old T) error) rest.ValidateObjectUpdateFunc {
	return func(ctx context.Context, obj, old runtime.Object) error {
		if before != nil {
			if err := before(ctx, obj, old); err != nil {
				return err
			}
		}
		if guard == nil {
			return nil
		}
		return guard(ctx, obj.(T), old.(T))
	}
}

// Part is a part of the spec that has a door of its own.
type Part[T Object, S, U any] struct {
	// Taken are the fields that are taken as the new object has them, as dotted paths. None: the server writes all of it.
	Taken []string
	// Take returns the old spec with the part as the new one wants it. It records what the server records, never fails and
	// may run several times.
	Take func(ctx context.Context, wanted *S, old T) S
	// Validate judges the change, on the final object.
	Validate func(obj, old T) field.ErrorList
	// Guard is asked last, for rules that need the user or other objects. May be nil.
	Guard func(ctx context.Context, obj, old T) error
}

// partStrategy is the door for a part of the spec.
type partStrategy[T Object, S, U any] struct {
	strategy[T, S, U]
	part Part[T, S, U]
}

// PrepareForUpdate keeps all but the part.
func (s partStrategy[T, S, U]) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	object, was := obj.(T), old.(T)
	keepMeta(object, was)
	*s.kind.Status(object) = *s.kind.Status(was)
	wanted := *s.kind.Spec(object)
	*s.kind.Spec(object) = s.part.Take(ctx, &wanted, was)
	s.moveGeneration(object, was)
	s.recordProgress(object, was)
}

// ValidateUpdate judges the part.
func (s partStrategy[T, S, U]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return s.part.Validate(obj.(T), old.(T))
}

// WarningsOnUpdate returns none.
func (partStrategy[T, S, U]) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
