// SPDX-License-Identifier: Apache-2.0

package standard

import (
	"context"
	"fmt"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"maesh.dev/ichor/pkg/apis/ichor/progress"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/reset"
)

// strategy is what people may do with an object through the main resource.
type strategy[T Object, S, U any] struct {
	runtime.ObjectTyper
	names.NameGenerator
	kind *Kind[T, S, U]
}

func newStrategy[T Object, S, U any](typer runtime.ObjectTyper, kind *Kind[T, S, U]) strategy[T, S, U] {
	return strategy[T, S, U]{ObjectTyper: typer, NameGenerator: names.SimpleNameGenerator, kind: kind}
}

// NamespaceScoped is false: no resource of the group belongs to a namespace.
func (strategy[T, S, U]) NamespaceScoped() bool { return false }

// AllowCreateOnUpdate is false: a PUT doesn't create.
func (strategy[T, S, U]) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate is false: a PUT names the version that it was made from.
func (strategy[T, S, U]) AllowUnconditionalUpdate(context.Context) bool { return false }

// GetResetFields are the fields that only other doors write.
func (s strategy[T, S, U]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return reset.Fields(append([]string{"status"}, s.kind.Locked...)...)
}

// PrepareForCreate makes an object of which nothing was observed.
func (s strategy[T, S, U]) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	object := obj.(T)
	*s.kind.Status(object) = *new(U)
	object.SetGeneration(1)
	object.SetFinalizers(reset.Finalizers(object.GetFinalizers(), nil))
	if s.kind.Keep != nil {
		s.kind.Keep(s.kind.Spec(object), new(S))
	}
	s.prepare(ctx, object, *new(T))
	progress.Record(s.kind.Conditions(object), nil, object.GetGeneration(), s.kind.Progress(object))
}

// PrepareForUpdate keeps what only other doors write.
func (s strategy[T, S, U]) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	object, was := obj.(T), old.(T)
	*s.kind.Status(object) = *s.kind.Status(was)
	object.SetFinalizers(reset.Finalizers(object.GetFinalizers(), was.GetFinalizers()))
	if s.kind.Keep != nil {
		s.kind.Keep(s.kind.Spec(object), s.kind.Spec(was))
	}
	s.prepare(ctx, object, was)
	s.moveGeneration(object, was)
	s.recordProgress(object, was)
}

// recordProgress says in the conditions that every kind has where the object is now. The status may be the old object's.
func (s strategy[T, S, U]) recordProgress(obj, old T) {
	progress.Record(s.kind.Conditions(obj), *s.kind.Conditions(old), obj.GetGeneration(), s.kind.Progress(obj))
}

func (s strategy[T, S, U]) prepare(ctx context.Context, obj, old T) {
	if s.kind.Prepare != nil {
		s.kind.Prepare(ctx, obj, old)
	}
}

// moveGeneration moves the generation when the spec changes. (The generic registry moves it at the deletion.)
func (s strategy[T, S, U]) moveGeneration(obj, old T) {
	if !apiequality.Semantic.DeepEqual(s.kind.Spec(obj), s.kind.Spec(old)) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

// Validate judges a new object.
func (s strategy[T, S, U]) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	object := obj.(T)
	var none T
	return slices.Concat(validation.ValidateOwners(object.GetOwnerReferences(), nil), s.kind.Validate(object), s.among(ctx, object, none))
}

func (s strategy[T, S, U]) among(ctx context.Context, obj, old T) field.ErrorList {
	if s.kind.ValidateAmong == nil {
		return nil
	}
	return s.kind.ValidateAmong(ctx, obj, old)
}

// ValidateUpdate judges a change through the main resource.
func (s strategy[T, S, U]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	object, was := obj.(T), old.(T)
	return slices.Concat(validation.ValidateOwners(object.GetOwnerReferences(), was.GetOwnerReferences()), s.kind.ValidateUpdate(object, was),
		s.among(ctx, object, was))
}

// WarningsOnCreate tells of what is allowed and may be unwise.
func (s strategy[T, S, U]) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	if s.kind.Warnings == nil {
		return nil
	}
	return s.kind.Warnings(obj.(T))
}

// WarningsOnUpdate tells of what is allowed and may be unwise.
func (s strategy[T, S, U]) WarningsOnUpdate(ctx context.Context, obj, _ runtime.Object) []string {
	return s.WarningsOnCreate(ctx, obj)
}

// Canonicalize changes nothing: objects were spelled in their one way before they were judged.
func (strategy[T, S, U]) Canonicalize(runtime.Object) {}

// keepMeta undoes every change of the metadata but of managedFields and resourceVersion, which the generic registry
// needs as they came. Doors other than the main one call it: they change what their name says.
func keepMeta(obj, old Object) {
	version, managed := obj.GetResourceVersion(), obj.GetManagedFields()
	kept := old.DeepCopyObject().(metav1.Object)
	obj.SetName(kept.GetName())
	obj.SetGenerateName(kept.GetGenerateName())
	obj.SetUID(kept.GetUID())
	obj.SetGeneration(kept.GetGeneration())
	obj.SetCreationTimestamp(kept.GetCreationTimestamp())
	obj.SetDeletionTimestamp(kept.GetDeletionTimestamp())
	obj.SetDeletionGracePeriodSeconds(kept.GetDeletionGracePeriodSeconds())
	obj.SetLabels(kept.GetLabels())
	obj.SetAnnotations(kept.GetAnnotations())
	obj.SetOwnerReferences(kept.GetOwnerReferences())
	obj.SetFinalizers(kept.GetFinalizers())
	obj.SetResourceVersion(version)
	obj.SetManagedFields(managed)
}

// statusStrategy is the door for what was observed.
type statusStrategy[T Object, S, U any] struct{ strategy[T, S, U] }

// GetResetFields is all but the status.
func (s statusStrategy[T, S, U]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return reset.Status(append([]string{"metadata", "spec"}, s.kind.StatusKept...)...)
}

// PrepareForUpdate keeps all but the status.
func (s statusStrategy[T, S, U]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	object, was := obj.(T), old.(T)
	keepMeta(object, was)
	*s.kind.Spec(object) = *s.kind.Spec(was)
	if s.kind.KeepStatus != nil {
		s.kind.KeepStatus(s.kind.Status(object), s.kind.Status(was))
	}
	s.recordProgress(object, was)
}

// ValidateUpdate judges a status.
func (s statusStrategy[T, S, U]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	if s.kind.ValidateStatus == nil {
		return nil
	}
	return s.kind.ValidateStatus(obj.(T), old.(T))
}

// WarningsOnUpdate returns none: who writes the status can't change the spec.
func (statusStrategy[T, S, U]) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// attrs returns what selectors see.
func (k *Kind[T, S, U]) attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	object, ok := obj.(T)
	if !ok {
		return nil, nil, fmt.Errorf("select one of %s: got %T", k.Resource, obj)
	}
	selectable := generic.ObjectMetaFieldsSet(&metav1.ObjectMeta{Name: object.GetName()}, false)
	if k.Selectable != nil {
		selectable = generic.MergeFieldsSets(selectable, k.Selectable(object))
	}
	return object.GetLabels(), selectable, nil
}
