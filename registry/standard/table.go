// SPDX-License-Identifier: Apache-2.0

package standard

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// None stands for what isn't known or doesn't apply.
const None = "<none>"

// tableConvertor prints objects for kubectl get: Name, the kind's columns, Age.
type tableConvertor[T Object, S, U any] struct {
	kind    *Kind[T, S, U]
	columns []metav1.TableColumnDefinition
	// age is the place of the column Age.
	age int
	// other prints what isn't an object of the kind: the answer to a deletion.
	other rest.TableConvertor
}

func newTableConvertor[T Object, S, U any](kind *Kind[T, S, U]) rest.TableConvertor {
	columns := []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
	}
	columns = append(columns, kind.Columns...)
	age := metav1.TableColumnDefinition{Name: "Age", Type: "string", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]}
	at := firstWide(columns)
	return tableConvertor[T, S, U]{
		kind: kind, columns: slices.Insert(columns, at, age), age: at,
		other: rest.NewDefaultTableConvertor(ichor.Resource(kind.Resource)),
	}
}

// firstWide is where the columns begin that are shown with -o wide; Age stands before them.
func firstWide(columns []metav1.TableColumnDefinition) int {
	for i, column := range columns {
		if column.Priority > 0 {
			return i
		}
	}
	return len(columns)
}

// ConvertToTable prints an object or a list of objects.
func (c tableConvertor[T, S, U]) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	_, single := obj.(T)
	if !single && !meta.IsListType(obj) {
		return c.other.ConvertToTable(ctx, obj, options)
	}
	table := &metav1.Table{}
	if opt, ok := options.(*metav1.TableOptions); !ok || !opt.NoHeaders {
		table.ColumnDefinitions = c.columns
	}
	if list, err := meta.ListAccessor(obj); err == nil {
		table.ResourceVersion = list.GetResourceVersion()
		table.Continue = list.GetContinue()
		table.RemainingItemCount = list.GetRemainingItemCount()
	} else if object, err := meta.CommonAccessor(obj); err == nil {
		table.ResourceVersion = object.GetResourceVersion()
	}
	var err error
	table.Rows, err = metatable.MetaToTableRow(obj, c.row)
	return table, err
}

func (c tableConvertor[T, S, U]) row(obj runtime.Object, _ metav1.Object, name, age string) ([]any, error) {
	cells := append([]any{name}, c.kind.Cells(obj.(T))...)
	return slices.Insert(cells, c.age, any(age)), nil
}

// Text is a value, or None if it is empty.
func Text[V ~string](value V) string {
	if value == "" {
		return None
	}
	return string(value)
}

// Condition says in one word what a condition says: True, False, Unknown or None.
func Condition(conditions []metav1.Condition, name string) string {
	if found := meta.FindStatusCondition(conditions, name); found != nil {
		return string(found.Status)
	}
	return None
}

// Ago is how long ago something was, as kubectl writes an age.
func Ago(at *metav1.Time) string {
	if at.IsZero() {
		return None
	}
	return metatable.ConvertToHumanReadableDateType(*at)
}
