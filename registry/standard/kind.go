// SPDX-License-Identifier: Apache-2.0

package standard

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor/progress"
)

// Object is an object of the internal version.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind is what is particular to a kind with the spec S and the status U. All members without "may be nil" are required.
type Kind[T Object, S, U any] struct {
	// Resource and Singular are its names in URLs and for kubectl, for instance talosstorages and talosstorage.
	Resource, Singular string
	// ShortNames are what people type.
	ShortNames []string
	// New returns an empty object, NewList an empty list.
	New     func() T
	NewList func() runtime.Object
	// Spec and Status return where the parts of an object are.
	Spec   func(T) *S
	Status func(T) *U

	// Prepare spells an object in the one way in which it is stored, and records what the server records. The old object
	// is nil at creation. It never fails and may run several times. May be nil.
	Prepare func(ctx context.Context, obj, old T)
	// Locked are the fields of the spec that no writer of the main resource changes, as dotted paths; Keep copies them from
	// the old object, and from an empty one at creation. Both may be nil.
	Locked []string
	Keep   func(to, from *S)
	// Validate judges a new object, ValidateUpdate a changed one, all of it.
	Validate       func(obj T) field.ErrorList
	ValidateUpdate func(obj, old T) field.ErrorList
	// ValidateAmong judges an object by others: a new one, with no old object, or a changed one. May be nil.
	ValidateAmong func(ctx context.Context, obj, old T) field.ErrorList
	// StatusKept are fields of the status that the status door doesn't change, as dotted paths; KeepStatus copies them.
	// Both may be nil.
	StatusKept []string
	KeepStatus func(to, from *U)
	// ValidateStatus judges a change of the status. May be nil.
	ValidateStatus func(obj, old T) field.ErrorList
	// Conditions are where an object's conditions are, and Progress what the server adds to them.
	Conditions func(T) *[]metav1.Condition
	Progress   func(T) progress.Progress
	// Warnings tell of what is allowed and may be unwise. May be nil.
	Warnings func(obj T) []string

	// Tried is told of a write that was only tried (a dry run) and would have succeeded, so that it can say what would follow.
	// The old object is nil for one that would be new, the new one for one that would be gone. May be nil.
	Tried func(ctx context.Context, obj, old T)

	// Guard is asked last, inside the transaction, for rules that need the user or other objects. May be nil.
	Guard Guard[T]

	// Selectable are the fields for selectors besides metadata.name. May be nil.
	Selectable func(T) fields.Set
	// Columns are those between Name and Age, and Cells their values.
	Columns []metav1.TableColumnDefinition
	Cells   func(T) []any
}

// Guard holds the rules of a kind that need more than its object. Members may be nil.
type Guard[T Object] struct {
	Create func(ctx context.Context, obj T) error
	Update func(ctx context.Context, obj, old T) error
	Delete func(ctx context.Context, obj T) error
}

// Column is a column of text; wide ones are shown with -o wide.
func Column(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "string", Description: description}
}

// Wide is a column that is shown with -o wide.
func Wide(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "string", Description: description, Priority: 1}
}
