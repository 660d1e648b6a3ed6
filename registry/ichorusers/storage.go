// SPDX-License-Identifier: Apache-2.0

// Package ichorusers is the storage of IchorUsers. A user's password goes in through the subresource "password", is
// hashed at once and kept apart; nothing that reads, lists, watches or audits users ever sees it or its hash. The
// subresource "certificate" asks for a client certificate of Kubernetes.
package ichorusers

import (
	"bytes"
	"context"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/klog/v2"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/progress"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/standard"
)

type (
	object = *ichor.IchorUser
	spec   = ichor.IchorUserSpec
	status = ichor.IchorUserStatus
)

// Storage is the storage of the kind and its subresources.
type Storage struct {
	*standard.Storage[object, spec, status]
	// Password takes passwords; Certificate takes requests for certificates.
	Password    *PasswordREST
	Certificate *standard.PartDoor[object]
}

// nowFunc is replaced by tests.
var nowFunc = metav1.Now

// forgetTimeout bounds how long a deletion waits until the user's password is gone; without a user nobody asks for it.
const forgetTimeout = 5 * time.Second

// New builds it.
func New(typer runtime.ObjectTyper, options generic.RESTOptionsGetter) (*Storage, error) {
	base, err := standard.New(typer, options, standard.Kind[object, spec, status]{
		Resource: "ichorusers", Singular: "ichoruser", ShortNames: []string{"iu"},
		New:            func() object { return &ichor.IchorUser{} },
		NewList:        func() runtime.Object { return &ichor.IchorUserList{} },
		Spec:           func(u object) *spec { return &u.Spec },
		Status:         func(u object) *status { return &u.Status },
		Conditions:     func(u object) *[]metav1.Condition { return &u.Status.Conditions },
		Progress:       progress.IchorUser,
		Locked:         []string{"spec.certificateRequest"},
		Keep:           func(to, from *spec) { to.CertificateRequest = from.CertificateRequest },
		Validate:       validation.ValidateIchorUser,
		ValidateUpdate: validation.ValidateIchorUserUpdate,
		StatusKept:     []string{"status.passwordChangedAt"},
		KeepStatus:     func(to, from *status) { to.PasswordChangedAt = from.PasswordChangedAt },
		ValidateStatus: validation.ValidateIchorUserStatusUpdate,
		Selectable:     func(u object) fields.Set { return fields.Set{"spec.role": string(u.Spec.Role)} },
		Columns: []metav1.TableColumnDefinition{
			standard.Column("Role", "What the person may do."),
			standard.Column("Disabled", "Whether the person is kept out."),
			standard.Column("LastLogin", "How long ago the person signed in last."),
			standard.Wide("Name", "What the web page calls the person."),
		},
		Cells: func(u object) []any {
			disabled := "false"
			if u.Spec.Disabled {
				disabled = "true"
			}
			return []any{string(u.Spec.Role), disabled, standard.Ago(u.Status.LastLoginTime), standard.Text(u.Spec.DisplayName)}
		},
	})
	if err != nil {
		return nil, err
	}
	kept, destroy, err := newPasswords(options)
	if err != nil {
		return nil, err
	}
	base.Main.AfterDelete = func(obj runtime.Object, _ *metav1.DeleteOptions) { forget(kept, obj.(object)) }
	return &Storage{
		Storage:  base,
		Password: &PasswordREST{users: base.Main.Store, passwords: kept, destroy: destroy},
		Certificate: base.Part(standard.Part[object, spec, status]{
			Taken: []string{"spec.certificateRequest.request", "spec.certificateRequest.ttl"},
			Take:  takeCertificateRequest, Validate: validation.ValidateIchorUserCertificate,
		}),
	}, nil
}

// forget removes the password of a user who is gone. The store's hook has no context.
func forget(kept *passwords, user object) {
	ctx, cancel := context.WithTimeout(context.Background(), forgetTimeout)
	defer cancel()
	if err := kept.remove(ctx, user.UID); err != nil {
		klog.FromContext(ctx).Error(err, "The password of a deleted user stays stored; nothing can use it any more", "user", user.Name)
	}
}

// takeCertificateRequest records who asks for a certificate, and when. The same request again changes nothing.
func takeCertificateRequest(ctx context.Context, wanted *spec, old object) spec {
	next := *old.Spec.DeepCopy()
	asked := wanted.CertificateRequest
	if asked == nil {
		next.CertificateRequest = nil
		return next
	}
	if was := old.Spec.CertificateRequest; was != nil && bytes.Equal(was.Request, asked.Request) && apiequality.Semantic.DeepEqual(was.TTL, asked.TTL) {
		return next
	}
	now := nowFunc()
	next.CertificateRequest = &ichor.UserCertificateRequest{Request: asked.Request, TTL: asked.TTL, At: &now}
	if user, ok := request.UserFrom(ctx); ok {
		next.CertificateRequest.By = user.GetName()
	}
	return next
}
