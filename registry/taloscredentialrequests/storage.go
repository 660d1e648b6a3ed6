// SPDX-License-Identifier: Apache-2.0

// Package taloscredentialrequests is the storage of TalosCredentialRequests. Who makes one needs the verb "request" on
// taloscredentialrequests/role for the Talos role that is asked for; who it was is recorded by the server.
package taloscredentialrequests

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/progress"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/standard"
	"maesh.dev/ichor/registry/verbs"
)

type (
	object = *ichor.TalosCredentialRequest
	spec   = ichor.TalosCredentialRequestSpec
	status = ichor.TalosCredentialRequestStatus
)

// Storage is the storage of the kind.
type Storage = standard.Storage[object, spec, status]

// New builds it.
func New(typer runtime.ObjectTyper, options generic.RESTOptionsGetter, checker verbs.Checker) (*Storage, error) {
	return standard.New(typer, options, standard.Kind[object, spec, status]{
		Resource: "taloscredentialrequests", Singular: "taloscredentialrequest", ShortNames: []string{"tcr"},
		New:            func() object { return &ichor.TalosCredentialRequest{} },
		NewList:        func() runtime.Object { return &ichor.TalosCredentialRequestList{} },
		Spec:           func(r object) *spec { return &r.Spec },
		Status:         func(r object) *status { return &r.Status },
		Conditions:     func(r object) *[]metav1.Condition { return &r.Status.Conditions },
		Progress:       progress.TalosCredentialRequest,
		Prepare:        recordRequester,
		Locked:         []string{"spec.requester"},
		Keep:           func(to, from *spec) { to.Requester = from.Requester },
		Validate:       validation.ValidateTalosCredentialRequest,
		ValidateUpdate: validation.ValidateTalosCredentialRequestUpdate,
		ValidateStatus: validation.ValidateTalosCredentialRequestStatusUpdate,
		Warnings:       validation.CredentialRequestWarnings,
		Guard: standard.Guard[object]{Create: func(ctx context.Context, r object) error {
			return checker.Require(ctx, verbs.RequestRole, string(r.Spec.Role))
		}},
		Selectable: func(r object) fields.Set {
			return fields.Set{"spec.clusterRef.name": r.Spec.ClusterRef.Name, "spec.role": string(r.Spec.Role)}
		},
		Columns: []metav1.TableColumnDefinition{
			standard.Column("Role", "The Talos role that is asked for."),
			standard.Column("Requester", "Who asked."),
			standard.Column("Expires", "When the certificate ends."),
			standard.Wide("Cluster", "Whose machines are to be reached."),
		},
		Cells: func(r object) []any {
			expires := standard.None
			if at := r.Status.ExpiresAt; at != nil {
				expires = at.UTC().Format("2006-01-02T15:04:05Z")
			}
			return []any{string(r.Spec.Role), standard.Text(r.Spec.Requester.Username), expires, r.Spec.ClusterRef.Name}
		},
	})
}

// recordRequester notes who made the request, after impersonation.
func recordRequester(ctx context.Context, r, old object) {
	if old != nil {
		return
	}
	r.Spec.Requester = ichor.CredentialRequester{}
	if user, ok := request.UserFrom(ctx); ok {
		r.Spec.Requester = ichor.CredentialRequester{Username: user.GetName(), UID: types.UID(user.GetUID()), Groups: user.GetGroups()}
	}
}
