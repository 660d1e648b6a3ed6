// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/verbs"
)

// IdentityREST is talosmachines/identity: a person's word on which machine a doubtful one is.
type IdentityREST struct {
	subresource
	reader  factsReader
	checker verbs.Checker
}

var _ rest.Patcher = &IdentityREST{}

// Update records the word.
func (r *IdentityREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	if err := r.checker.Require(ctx, verbs.Approve, name); err != nil {
		return nil, false, err
	}
	others, err := r.reader.list(ctx)
	if err != nil {
		return nil, false, err
	}
	ctx = withFacts(ctx, validation.ApprovalFacts{Others: others})
	return r.store.Update(ctx, name, objInfo, createValidation, updateValidation, false, options)
}
