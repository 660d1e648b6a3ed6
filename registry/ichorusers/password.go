// SPDX-License-Identifier: Apache-2.0

package ichorusers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
)

// maxBody is more than the longest password takes, whatever is escaped in it.
const maxBody = 16 << 10

// PasswordREST is ichorusers/password: PUT {"password": "…"} sets it, and nothing gets it. It is a connection, as that of
// pods/exec, because bodies of those are written into no audit log, at whatever level. (The server refuses a dry run of any
// connection.)
type PasswordREST struct {
	users     *genericregistry.Store
	passwords *passwords
	destroy   func()
}

var (
	_ rest.Connecter       = &PasswordREST{}
	_ rest.StorageMetadata = &PasswordREST{}
)

// New returns an empty user.
func (*PasswordREST) New() runtime.Object { return &ichor.IchorUser{} }

// Destroy closes the storage of passwords.
func (r *PasswordREST) Destroy() { r.destroy() }

// ConnectMethods is PUT alone: RBAC knows it as the verb "update".
func (*PasswordREST) ConnectMethods() []string { return []string{http.MethodPut} }

// NewConnectOptions are none.
func (*PasswordREST) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }

// ProducesMIMETypes is JSON.
func (*PasswordREST) ProducesMIMETypes(string) []string { return []string{runtime.ContentTypeJSON} }

// ProducesObject is a Status.
func (*PasswordREST) ProducesObject(string) any { return metav1.Status{} }

// Connect takes a password for the user.
func (r *PasswordREST) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	obj, err := r.users.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := r.take(ctx, obj.(*ichor.IchorUser), w, req); err != nil {
			responder.Error(err)
			return
		}
		responder.Object(http.StatusOK, &metav1.Status{
			Status: metav1.StatusSuccess, Code: http.StatusOK,
			Message: fmt.Sprintf("the password of user %s is set", name),
		})
	}), nil
}

func (r *PasswordREST) take(ctx context.Context, user *ichor.IchorUser, w http.ResponseWriter, req *http.Request) error {
	password, err := readPassword(w, req)
	if err != nil {
		return err
	}
	if errs := validation.ValidatePassword(password, user.Name, field.NewPath("password")); len(errs) > 0 {
		return apierrors.NewInvalid(v1alpha1.Kind("IchorUser"), user.Name, errs)
	}
	if user.DeletionTimestamp != nil {
		return apierrors.NewConflict(ichor.Resource("ichorusers"), user.Name, errors.New("the user is being deleted"))
	}
	if err := r.passwords.set(ctx, user.UID, password); err != nil {
		return apierrors.NewInternalError(err)
	}
	return r.record(ctx, user)
}

// record writes when the password was set. If that fails, the password is set all the same; setting it again mends it.
func (r *PasswordREST) record(ctx context.Context, user *ichor.IchorUser) error {
	key, err := r.users.KeyFunc(ctx, user.Name)
	if err != nil {
		return err
	}
	now := nowFunc()
	err = r.users.Storage.GuaranteedUpdate(ctx, key, &ichor.IchorUser{}, false, storage.NewUIDPreconditions(string(user.UID)),
		storage.SimpleUpdate(func(current runtime.Object) (runtime.Object, error) {
			user := current.(*ichor.IchorUser)
			user.Status.PasswordChangedAt = &now
			meta.SetStatusCondition(&user.Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionPasswordSet, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPasswordSet,
				Message: "the user can sign in with a password", ObservedGeneration: user.Generation,
			})
			return user, nil
		}), false, nil)
	if err != nil {
		return fmt.Errorf("record that the password of user %s was set: %w", user.Name, err)
	}
	return nil
}

func readPassword(w http.ResponseWriter, req *http.Request) (string, error) {
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != runtime.ContentTypeJSON {
		return "", &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: "the password must come as " + runtime.ContentTypeJSON,
		}}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return "", apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("a password takes %d bytes at most", maxBody))
		}
		return "", apierrors.NewBadRequest("the body broke off")
	}
	// The decoder's own errors repeat what they found; ours don't.
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		return "", apierrors.NewBadRequest(`the body must be an object with the one field "password"`)
	}
	password, ok := fields["password"].(string)
	if !ok || len(fields) != 1 {
		return "", apierrors.NewBadRequest(`the body must be an object with the one field "password", a text`)
	}
	return password, nil
}

// Verify tells whether the password is the user's.
func (r *PasswordREST) Verify(ctx context.Context, user *ichor.IchorUser, password string) (bool, error) {
	return r.passwords.verify(ctx, user.UID, password)
}
