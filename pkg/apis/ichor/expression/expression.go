// SPDX-License-Identifier: Apache-2.0

// Package expression understands the expressions of gates: Kubernetes' own dialect of the Common Expression Language
// over one object, in the variable "object". It is the one place that knows the environment, so that what was accepted
// when an operation was made means the same when a machine is about to begin. It never reads an object itself.
package expression

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// Variable is the name that expressions know the object by.
const Variable = "object"

// environments is Kubernetes' own environment, with the variable. Its functions and limits are those that people know
// from validation rules: an expression that costs more than 1,000,000 units (a tenth of a second or so) is ended.
// Source: Kubernetes: staging/src/k8s.io/apiserver/pkg/cel/environment/base.go, pkg/apis/cel/config.go.
var environments = sync.OnceValues(func() (*environment.EnvSet, error) {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: environment.DefaultCompatibilityVersion(),
		EnvOptions:        []cel.EnvOption{cel.Variable(Variable, cel.DynType)},
	})
})

// Check judges an expression that is about to be stored: it must compile, be true or false, and not cost more than the
// limit whatever the object is.
func Check(text string) error {
	set, err := environments()
	if err != nil {
		return fmt.Errorf("environment of expressions: %w", err)
	}
	env := set.NewExpressionsEnv()
	ast, err := compile(env, text)
	if err != nil {
		return err
	}
	cost, err := env.EstimateCost(ast, &library.CostEstimator{})
	if err != nil {
		return fmt.Errorf("its cost can't be told: %w", err)
	}
	if cost.Min > celconfig.PerCallLimit {
		return fmt.Errorf("costs too much: %d units at least, and the limit is %d", cost.Min, celconfig.PerCallLimit)
	}
	return nil
}

func compile(env *cel.Env, text string) (*cel.Ast, error) {
	ast, issues := env.Compile(text)
	if issues != nil && issues.Err() != nil {
		return nil, issues.Err()
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, errors.New("must be true or false, and is of type " + t.String())
	}
	return ast, nil
}

// Expression is one that was compiled.
type Expression struct {
	text    string
	program cel.Program
}

// Compile makes an expression ready that was stored: by any version of Ichor, so with everything that the language has.
func Compile(text string) (Expression, error) {
	set, err := environments()
	if err != nil {
		return Expression{}, fmt.Errorf("environment of expressions: %w", err)
	}
	env := set.StoredExpressionsEnv()
	ast, err := compile(env, text)
	if err != nil {
		return Expression{}, err
	}
	program, err := env.Program(ast)
	if err != nil {
		return Expression{}, fmt.Errorf("prepare the expression: %w", err)
	}
	return Expression{text, program}, nil
}

// NeverError says that an expression can't be judged, and that another state of the object hardly changes that.
type NeverError struct{ why string }

func (e *NeverError) Error() string { return e.why }

// YetError says that an expression can't be judged on an object as it is now.
type YetError struct{ why string }

func (e *YetError) Error() string { return e.why }

// Holds tells whether an expression is true of an object, as JSON has it. Errors are a NeverError, a YetError or the
// context's. They quote nothing of the object but names of fields that are in the expression: whoever may read the error
// needn't be allowed to read the object.
func (e Expression) Holds(ctx context.Context, object map[string]any) (bool, error) {
	value, _, err := e.program.ContextEval(ctx, map[string]any{Variable: object})
	if ctx.Err() != nil {
		return false, fmt.Errorf("evaluate an expression: %w", ctx.Err())
	}
	if err != nil {
		return false, e.explain(err)
	}
	switch value := value.(type) {
	case types.Bool:
		return bool(value), nil
	case types.Null:
		return false, &YetError{"it is null, and neither true nor false"}
	default:
		return false, &NeverError{"it must be true or false, and is of type " + value.Type().TypeName()}
	}
}

// explain puts an error of the interpreter into words of our own. Source: cel-go: common/types/err.go,
// interpreter/interpreter.go.
func (e Expression) explain(err error) error {
	text := err.Error()
	if strings.Contains(text, "cost limit exceeded") {
		return &NeverError{fmt.Sprintf("it costs more than the limit of %d units on this object", celconfig.PerCallLimit)}
	}
	if _, key, found := strings.Cut(text, "no such key: "); found && strings.Contains(e.text, key) {
		return &YetError{fmt.Sprintf("the object has no field %q where the expression reads it; has(…) or object.?a.?b.orValue(…) allow for that", key)}
	}
	if strings.Contains(text, "no such overload") {
		return &YetError{"a function or operator doesn't take what the object has there now"}
	}
	return &YetError{"it fails on what the object has now (a text that is no number, an index that isn't there)"}
}
