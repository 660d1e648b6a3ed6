// SPDX-License-Identifier: Apache-2.0

package talosoperations

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/expression"
)

// checkExpressions judges the expressions of gates.
func checkExpressions(gates []ichor.OperationGate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, gate := range gates {
		if gate.CEL == nil || gate.CEL.Expression == "" {
			continue
		}
		if err := expression.Check(gate.CEL.Expression); err != nil {
			errs = append(errs, field.Invalid(path.Index(i).Child("cel", "expression"), gate.CEL.Expression, err.Error()))
		}
	}
	return errs
}
