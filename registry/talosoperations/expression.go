// SPDX-License-Identifier: Apache-2.0

package talosoperations

import (
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// expressions is Kubernetes' own environment for expressions, with the variable "object". Its functions and limits are
// those that people know from validation rules.
var expressions = sync.OnceValues(func() (*environment.EnvSet, error) {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: environment.DefaultCompatibilityVersion(),
		EnvOptions:        []cel.EnvOption{cel.Variable("object", cel.DynType)},
	})
})

// checkExpressions compiles the expressions of gates.
func checkExpressions(gates []ichor.OperationGate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, gate := range gates {
		if gate.CEL == nil || gate.CEL.Expression == "" {
			continue
		}
		path := path.Index(i).Child("cel", "expression")
		set, err := expressions()
		if err != nil {
			return field.ErrorList{field.InternalError(path, err)}
		}
		ast, issues := set.NewExpressionsEnv().Compile(gate.CEL.Expression)
		switch {
		case issues != nil && issues.Err() != nil:
			errs = append(errs, field.Invalid(path, gate.CEL.Expression, issues.Err().Error()))
		case !ast.OutputType().IsExactType(cel.BoolType) && !ast.OutputType().IsExactType(cel.DynType):
			errs = append(errs, field.Invalid(path, gate.CEL.Expression, "must be true or false, and is of type "+ast.OutputType().String()))
		}
	}
	return errs
}
