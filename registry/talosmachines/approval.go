// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/apiserver/pkg/warning"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/slots"
	"maesh.dev/ichor/registry/verbs"
)

// approvalAttempts bounds how often an approval starts again because the machine changed under it.
const approvalAttempts = 5

// ApprovalREST is talosmachines/approval: the one way by which a machine becomes approved.
type ApprovalREST struct {
	subresource
	reader  factsReader
	gate    *slots.Gate
	checker verbs.Checker
}

var _ rest.Patcher = &ApprovalREST{}

// Update approves or rejects a machine, or changes what was decided about an approved one. For a control plane it
// claims a slot after the machine was read and before it is written, and the write is fenced on the version that was
// read. Patching and admission run inside the store's update, so the object is computed once beforehand to learn what
// to claim, and the final object is held to the claim. See registry/slots.
func (r *ApprovalREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (out runtime.Object, created bool, err error) {
	defer func() { countDecision(out, err, dryrun.IsDryRun(options.DryRun)) }()
	if err := r.checker.Require(ctx, verbs.Approve, name); err != nil {
		return nil, false, err
	}
	for attempt := 1; ; attempt++ {
		out, created, err := r.attempt(ctx, name, objInfo, createValidation, updateValidation, options)
		if !errors.Is(err, slots.ErrMachineMoved) {
			return out, created, err
		}
		if attempt == approvalAttempts || ctx.Err() != nil {
			return nil, false, apierrors.NewConflict(ichor.Resource("talosmachines"), name,
				errors.New(genericregistry.OptimisticLockErrorMsg))
		}
	}
}

func (r *ApprovalREST) attempt(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	was, err := r.reader.machine(ctx, name)
	if err != nil {
		return nil, false, err
	}
	ctx, intent := withIntent(ctx)
	candidate, err := candidateOf(ctx, objInfo, was)
	if err != nil {
		return nil, false, err
	}
	facts, err := r.reader.facts(ctx, candidate, was)
	if err != nil {
		return nil, false, err
	}
	ctx = withFacts(ctx, facts)
	decision := decision{intent: intent, was: was, attempt: r.gate.Attempt(was)}
	if err := decision.judge(ctx, r.store.UpdateStrategy, candidate); err != nil {
		return nil, false, err
	}
	if err := decision.attempt.Claim(ctx, candidate, dryrun.IsDryRun(options.DryRun)); err != nil {
		return nil, false, err
	}
	fenced := rest.WrapUpdatedObjectInfo(objInfo, func(_ context.Context, obj, old runtime.Object) (runtime.Object, error) {
		return obj, decision.attempt.Fence(old.(*ichor.TalosMachine))
	})
	held := func(ctx context.Context, obj, old runtime.Object) error {
		if updateValidation != nil {
			if err := updateValidation(ctx, obj, old); err != nil {
				return err
			}
		}
		machine := obj.(*ichor.TalosMachine)
		if err := decision.hold(machine); err != nil {
			return err
		}
		return r.judgeChanged(ctx, machine, candidate, was, facts)
	}
	out, created, err := r.store.Update(ctx, name, fenced, createValidation, held, false, options)
	if stored, ok := out.(*ichor.TalosMachine); ok && err == nil {
		r.reader.stored.saw(stored.ResourceVersion)
	}
	return out, created, err
}

// judgeChanged judges the final object once more if admission changed by what other machines can be in its way.
func (r *ApprovalREST) judgeChanged(ctx context.Context, machine, candidate, was *ichor.TalosMachine, facts validation.ApprovalFacts) error {
	if slices.Equal(marksOf(machine, was), marksOf(candidate, was)) {
		return nil
	}
	others, err := r.reader.inTheWay(ctx, machine, was)
	if err != nil {
		return err
	}
	facts.Others = others
	if errs := validation.ValidateTalosMachineApprovalUpdate(machine, was, facts); len(errs) > 0 {
		return apierrors.NewInvalid(ichor.Kind("TalosMachine"), machine.Name, errs)
	}
	return nil
}

// candidateOf computes the object that the request would store over the version that was read.
func candidateOf(ctx context.Context, objInfo rest.UpdatedObjectInfo, was *ichor.TalosMachine) (*ichor.TalosMachine, error) {
	if preconditions := objInfo.Preconditions(); preconditions != nil && preconditions.UID != nil && *preconditions.UID != was.UID {
		return nil, apierrors.NewConflict(ichor.Resource("talosmachines"), was.Name,
			fmt.Errorf("the machine was deleted and made again: it has UID %s now, not %s", was.UID, *preconditions.UID))
	}
	obj, err := objInfo.UpdatedObject(ctx, was.DeepCopy())
	if err != nil {
		return nil, err
	}
	candidate, ok := obj.(*ichor.TalosMachine)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a TalosMachine, got %T", obj))
	}
	switch candidate.ResourceVersion {
	case was.ResourceVersion:
	case "":
		return nil, apierrors.NewInvalid(ichor.Kind("TalosMachine"), was.Name, field.ErrorList{field.Required(
			field.NewPath("metadata", "resourceVersion"), "an approval names the version that the approver was shown")})
	default:
		return nil, apierrors.NewConflict(ichor.Resource("talosmachines"), was.Name, fmt.Errorf(
			"the machine has changed since: it is at resourceVersion %s, the request was made from %s; look at it again",
			was.ResourceVersion, candidate.ResourceVersion))
	}
	return candidate.DeepCopy(), nil
}

// discardWarnings keeps what is computed beforehand from warning twice.
type discardWarnings struct{}

// AddWarning drops the warning.
func (discardWarnings) AddWarning(string, string) {}

func withoutWarnings(ctx context.Context) context.Context {
	return warning.WithWarningRecorder(ctx, discardWarnings{})
}
