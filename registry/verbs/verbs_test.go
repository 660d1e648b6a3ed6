// SPDX-License-Identifier: Apache-2.0

package verbs_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"maesh.dev/ichor/registry/verbs"
)

func checker(t *testing.T, decision authorizer.Decision, err error, seen *authorizer.Attributes) verbs.Checker {
	t.Helper()
	c, failure := verbs.NewChecker(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		*seen = a
		return decision, "", err
	}))
	if failure != nil {
		t.Fatal(failure)
	}
	return c
}

func TestRequire(t *testing.T) {
	t.Parallel()
	alice := request.WithUser(context.Background(), &user.DefaultInfo{Name: "alice"})
	lastAsked := map[authorizer.Decision]string{authorizer.DecisionAllow: "", authorizer.DecisionDeny: "m1", authorizer.DecisionNoOpinion: "m1"}
	for name, tc := range map[string]struct {
		ctx      context.Context
		decision authorizer.Decision
		err      error
		want     func(error) bool
	}{
		"allowed":                       {alice, authorizer.DecisionAllow, nil, func(err error) bool { return err == nil }},
		"denied":                        {alice, authorizer.DecisionDeny, nil, apierrors.IsForbidden},
		"no opinion":                    {alice, authorizer.DecisionNoOpinion, nil, apierrors.IsForbidden},
		"the authorizer can't be asked": {alice, authorizer.DecisionNoOpinion, errors.New("no route"), apierrors.IsInternalError},
		"nobody asks":                   {context.Background(), authorizer.DecisionAllow, nil, apierrors.IsInternalError},
	} {
		var seen authorizer.Attributes
		err := checker(t, tc.decision, tc.err, &seen).Require(tc.ctx, verbs.Approve, "m1")
		if !tc.want(err) {
			t.Errorf("%s: %v", name, err)
		}
		if apierrors.IsForbidden(err) && !strings.Contains(err.Error(), `user "alice" needs the verb "approve" on talosmachines/approval of group ichor.maesh.dev`) {
			t.Errorf("%s: %q doesn't name user, verb and resource", name, err)
		}
		if seen != nil && (seen.GetVerb() != "approve" || seen.GetResource() != "talosmachines" || seen.GetSubresource() != "approval" || seen.GetName() != lastAsked[tc.decision] || !seen.IsResourceRequest()) {
			t.Errorf("%s: asked for %+v", name, seen)
		}
	}
}

func TestWhoMayForAllIsAskedOnce(t *testing.T) {
	t.Parallel()
	ctx := request.WithUser(context.Background(), &user.DefaultInfo{Name: "alice"})
	for name, tc := range map[string]struct {
		may   string
		want  bool
		asked []string
	}{
		"all machines":      {"", true, []string{""}},
		"this machine":      {"m1", true, []string{"", "m1"}},
		"another machine":   {"m2", false, []string{"", "m1"}},
		"no machine at all": {"none", false, []string{"", "m1"}},
	} {
		var asked []string
		c, err := verbs.NewChecker(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			asked = append(asked, a.GetName())
			if a.GetName() == tc.may {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Require(ctx, verbs.Approve, "m1"); (err == nil) != tc.want {
			t.Errorf("who may approve %s: %v", name, err)
		}
		if !slices.Equal(asked, tc.asked) {
			t.Errorf("who may approve %s: asked about %q, want %q", name, asked, tc.asked)
		}
	}
}

func TestThereIsAlwaysAnAuthorizer(t *testing.T) {
	t.Parallel()
	if _, err := verbs.NewChecker(nil); err == nil {
		t.Error("a checker without an authorizer: no error")
	}
}
