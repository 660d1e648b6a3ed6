// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// reviewer answers the questions of the server for its own rights.
type reviewer struct {
	authorizationclient.SelfSubjectAccessReviewExpansion
	answer func(*authorizationv1.ResourceAttributes) (bool, error)
}

// Create answers one question.
func (r reviewer) Create(_ context.Context, review *authorizationv1.SelfSubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error) {
	allowed, err := r.answer(review.Spec.ResourceAttributes)
	review.Status.Allowed = allowed
	return review, err
}

func TestMissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer func(*authorizationv1.ResourceAttributes) (bool, error)
		want   string
	}{
		"all are there": {func(*authorizationv1.ResourceAttributes) (bool, error) { return true, nil }, ""},
		"policies were forgotten": {func(a *authorizationv1.ResourceAttributes) (bool, error) {
			return a.Resource != "mutatingadmissionpolicies", nil
		}, "list mutatingadmissionpolicies.admissionregistration.k8s.io, watch mutatingadmissionpolicies.admissionregistration.k8s.io"},
		"a verb was forgotten": {func(a *authorizationv1.ResourceAttributes) (bool, error) {
			return a.Resource != "namespaces" || a.Verb != "watch", nil
		}, "grant the server's account: watch namespaces"},
		"nobody answers": {func(*authorizationv1.ResourceAttributes) (bool, error) { return false, errors.New("no route") }, "no route"},
	} {
		r := &rights{reviews: reviewer{answer: tc.answer}}
		if err := r.ask(t.Context()); tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
