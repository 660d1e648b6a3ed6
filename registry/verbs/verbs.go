// SPDX-License-Identifier: Apache-2.0

// Package verbs asks the delegated authorizer for the verbs that Ichor adds to Kubernetes' own. The storage asks itself,
// because a filter only ever sees the verb of the request, and an admission plugin can be switched off.
package verbs

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// CauseMissingVerb marks a refusal for lack of one of Ichor's verbs.
const CauseMissingVerb metav1.CauseType = "MissingVerb"

// Checker asks whether the user of a request may do something.
type Checker struct {
	authorizer authorizer.Authorizer
}

// NewChecker returns a checker. Without an authorizer everybody would be allowed everything, so that is an error.
func NewChecker(a authorizer.Authorizer) (Checker, error) {
	if a == nil {
		return Checker{}, errors.New("check verbs: no authorizer is configured")
	}
	return Checker{authorizer: a}, nil
}

// Permission is a verb on a subresource.
type Permission struct {
	Verb, Resource, Subresource string
}

// The permissions that Ichor adds.
var (
	// Approve machines, reject them, and say which machine a doubtful one is.
	Approve = Permission{v1alpha1.VerbApprove, "talosmachines", "approval"}
	// Remove approved machines.
	Remove = Permission{v1alpha1.VerbRemove, "talosmachines", "removal"}
	// RequestRole asks for a client certificate of a Talos role; the name is the role's.
	RequestRole = Permission{v1alpha1.VerbRequest, "taloscredentialrequests", "role"}
	// ReadConfig of machines: no verb of Ichor's own, but what else shows a part of machines' configurations asks for it too.
	ReadConfig = Permission{"get", "talosmachines", "config"}
	// ConfigureCNI of a cluster.
	ConfigureCNI = Permission{v1alpha1.VerbConfigure, "talosclusters", "cni"}
)

// Require returns nil if the user of the request, after impersonation, has the permission for the named object, and
// else a 403 that names the verb. Who has it for all objects has it for each, so that is asked first: the answer is the
// same for every name, and is cached. (Kubernetes asks for signers in the same way: their name, or all of their domain.)
func (c Checker) Require(ctx context.Context, permission Permission, name string) error {
	user, ok := request.UserFrom(ctx)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("check verb %s: the request has no user", permission.Verb))
	}
	ask := func(name string) (authorizer.Decision, string, error) {
		return c.authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User:            user,
			Verb:            permission.Verb,
			APIGroup:        ichor.GroupName,
			APIVersion:      v1alpha1.SchemeGroupVersion.Version,
			Resource:        permission.Resource,
			Subresource:     permission.Subresource,
			Name:            name,
			ResourceRequest: true,
		})
	}
	decision, reason, err := ask("")
	if decision != authorizer.DecisionAllow && name != "" {
		decision, reason, err = ask(name)
	}
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("ask whether %s may %s %s/%s: %w", user.GetName(), permission.Verb, permission.Resource, permission.Subresource, err))
	}
	message := fmt.Sprintf("user %q needs the verb %q on %s/%s of group %s", user.GetName(), permission.Verb, permission.Resource, permission.Subresource, ichor.GroupName)
	if reason != "" {
		message += ": " + reason
	}
	status := apierrors.NewForbidden(ichor.Resource(permission.Resource+"/"+permission.Subresource), name, errors.New(message))
	status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: CauseMissingVerb, Message: message})
	return status
}
