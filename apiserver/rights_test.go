// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

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

func soundOptions(t *testing.T) *Options {
	t.Helper()
	o, err := NewOptions()
	if err != nil {
		t.Fatal(err)
	}
	o.Recommended.Etcd.StorageConfig.Transport.ServerList = []string{"https://127.0.0.1:2379"}
	o.Recommended.SecureServing.ServerCert.CertKey.CertFile, o.Recommended.SecureServing.ServerCert.CertKey.KeyFile = "tls.crt", "tls.key"
	if err := o.Validate(); err != nil {
		t.Fatalf("sound options: %v", err)
	}
	return o
}

func TestMissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	const policies = "admissionregistration.k8s.io"
	lacking := func(resource string, verbs ...string) func(*authorizationv1.ResourceAttributes) (bool, error) {
		return func(a *authorizationv1.ResourceAttributes) (bool, error) {
			return a.Resource != resource || len(verbs) > 0 && a.Verb != verbs[0], nil
		}
	}
	for name, tc := range map[string]struct {
		answer func(*authorizationv1.ResourceAttributes) (bool, error)
		want   string
	}{
		"all are there":             {func(*authorizationv1.ResourceAttributes) (bool, error) { return true, nil }, ""},
		"namespaces, watch":         {lacking("namespaces", "watch"), "grant the server's account: watch namespaces ("},
		"who a caller is":           {lacking("tokenreviews"), ": create tokenreviews.authentication.k8s.io ("},
		"what he may":               {lacking("subjectaccessreviews"), ": create subjectaccessreviews.authorization.k8s.io ("},
		"the trusted CAs":           {lacking("configmaps"), ": get,list,watch configmaps kube-system/extension-apiserver-authentication ("},
		"mutating webhooks":         {lacking("mutatingwebhookconfigurations"), ": list,watch mutatingwebhookconfigurations." + policies + " ("},
		"validating webhooks":       {lacking("validatingwebhookconfigurations"), ": list,watch validatingwebhookconfigurations." + policies + " ("},
		"mutating policies":         {lacking("mutatingadmissionpolicies"), ": list,watch mutatingadmissionpolicies." + policies + " ("},
		"their bindings":            {lacking("mutatingadmissionpolicybindings"), ": list,watch mutatingadmissionpolicybindings." + policies + " ("},
		"validating policies":       {lacking("validatingadmissionpolicies", "list"), ": list validatingadmissionpolicies." + policies + " ("},
		"bindings of the latter":    {lacking("validatingadmissionpolicybindings"), ": list,watch validatingadmissionpolicybindings." + policies + " ("},
		"nobody answers":            {func(*authorizationv1.ResourceAttributes) (bool, error) { return false, errors.New("no route") }, "no route"},
		"two at once, in one error": {func(a *authorizationv1.ResourceAttributes) (bool, error) { return a.Group != policies, nil }, "mutatingadmissionpolicies." + policies + "; list,watch"},
	} {
		r := &rights{reviews: reviewer{answer: tc.answer}, needed: soundOptions(t).neededRights()}
		if err := r.ask(t.Context()); tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestAStartWaitsForRightsAndNotForever(t *testing.T) {
	t.Parallel()
	asked := 0
	late := &rights{needed: baseRights[:1], reviews: reviewer{answer: func(*authorizationv1.ResourceAttributes) (bool, error) {
		asked++
		return asked > 2, nil
	}}}
	if err := late.await(t.Context(), time.Minute); err != nil || asked != 3 {
		t.Errorf("rights that come at the third question: %v after %d", err, asked)
	}
	never := &rights{needed: baseRights[:1], reviews: reviewer{answer: func(*authorizationv1.ResourceAttributes) (bool, error) { return false, nil }}}
	if err := never.await(t.Context(), time.Millisecond); err == nil || !strings.Contains(err.Error(), "create tokenreviews") {
		t.Errorf("rights that never come: %v, want a refusal that names one", err)
	}
}
