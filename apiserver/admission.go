// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	"maesh.dev/ichor/registry/talosmachines"
)

// observedAdmission shows each object to the storage just before mutating admission changes it, so that an approval
// which a policy made of something else can be told from one that a person gave. It wraps the whole chain: no flag takes
// it out.
type observedAdmission struct {
	admission.Interface
}

var (
	_ admission.MutationInterface   = observedAdmission{}
	_ admission.ValidationInterface = observedAdmission{}
)

// Admit shows the object and lets the chain change it.
func (o observedAdmission) Admit(ctx context.Context, a admission.Attributes, objects admission.ObjectInterfaces) error {
	if a.GetSubresource() == "approval" {
		talosmachines.ObserveBeforeAdmission(ctx, a.GetObject())
	}
	if chain, ok := o.Interface.(admission.MutationInterface); ok && chain.Handles(a.GetOperation()) {
		return chain.Admit(ctx, a, objects)
	}
	return nil
}

// Validate lets the chain judge the object.
func (o observedAdmission) Validate(ctx context.Context, a admission.Attributes, objects admission.ObjectInterfaces) error {
	if chain, ok := o.Interface.(admission.ValidationInterface); ok && chain.Handles(a.GetOperation()) {
		return chain.Validate(ctx, a, objects)
	}
	return nil
}

// Handles every operation: the chain is asked again in each.
func (observedAdmission) Handles(admission.Operation) bool { return true }
