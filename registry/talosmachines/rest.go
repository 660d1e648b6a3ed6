// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"
	"strings"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/registry/verbs"
)

// REST is the main resource. What needs a verb of Ichor's own or another object is checked on the final object, after
// mutating admission, inside the store's transaction.
type REST struct {
	*genericregistry.Store
	reader  factsReader
	checker verbs.Checker
}

var (
	_ rest.StandardStorage    = &REST{}
	_ rest.ShortNamesProvider = &REST{}
	_ rest.CategoriesProvider = &REST{}
)

// Strategy is how the resource changes objects.
func (r *REST) Strategy() rest.RESTUpdateStrategy { return r.UpdateStrategy }

// ShortNames is what people type.
func (*REST) ShortNames() []string { return []string{"tm"} }

// Categories puts machines into "kubectl get ichor".
func (*REST) Categories() []string { return []string{"ichor"} }

// Create enters a machine.
func (r *REST) Create(ctx context.Context, obj runtime.Object, createValidation rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	return r.Store.Create(ctx, obj, r.creating(createValidation), options)
}

// Update changes what people may change at any time. Server-side apply creates through it.
func (r *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	checked := func(ctx context.Context, obj, old runtime.Object) error {
		if updateValidation != nil {
			if err := updateValidation(ctx, obj, old); err != nil {
				return err
			}
		}
		machine, was := obj.(*ichor.TalosMachine), old.(*ichor.TalosMachine)
		if err := r.checkAsked(ctx, machine, was.Spec.Removal); err != nil {
			return err
		}
		return r.checkTrust(ctx, machine, was.Annotations)
	}
	told := rest.WrapUpdatedObjectInfo(objInfo, func(ctx context.Context, obj, old runtime.Object) (runtime.Object, error) {
		warnOfIgnored(ctx, obj, old)
		return obj, nil
	})
	return r.Store.Update(ctx, name, told, r.creating(createValidation), checked, forceAllowCreate, options)
}

// Delete removes a machine; one that was approved is drained and reset by the controller first.
func (r *REST) Delete(ctx context.Context, name string, deleteValidation rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return r.Store.Delete(ctx, name, r.removing(deleteValidation, false), options)
}

// DeleteCollection removes machines that aren't approved.
func (r *REST) DeleteCollection(ctx context.Context, deleteValidation rest.ValidateObjectFunc, options *metav1.DeleteOptions,
	listOptions *metainternalversion.ListOptions,
) (runtime.Object, error) {
	if err := r.refuseCollection(ctx, listOptions); err != nil {
		return nil, err
	}
	return r.Store.DeleteCollection(ctx, r.removing(deleteValidation, true), options, listOptions)
}

func (r *REST) creating(createValidation rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if createValidation != nil {
			if err := createValidation(ctx, obj); err != nil {
				return err
			}
		}
		machine := obj.(*ichor.TalosMachine)
		if err := r.checkAsked(ctx, machine, nil); err != nil {
			return err
		}
		return r.checkTrust(ctx, machine, nil)
	}
}

// checkTrust asks for the verb "approve" if an annotation by which a person vouches for a machine is set or changed.
func (r *REST) checkTrust(ctx context.Context, machine *ichor.TalosMachine, was map[string]string) error {
	for name, value := range machine.Annotations {
		if before, there := was[name]; strings.HasPrefix(name, v1alpha1.TrustAnnotationPrefix) && (!there || before != value) {
			return r.checker.Require(ctx, verbs.Approve, machine.Name)
		}
	}
	return nil
}

// Machines returns all machines, at least as new as the call.
func (r *REST) Machines(ctx context.Context) ([]ichor.TalosMachine, error) {
	return r.reader.list(ctx)
}
