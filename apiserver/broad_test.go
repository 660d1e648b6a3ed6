// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"maesh.dev/ichor/pkg/apis/ichor"
)

func TestWhatIsAskedAboutRequests(t *testing.T) {
	t.Parallel()
	alice := &user.DefaultInfo{Name: "alice"}
	request := authorizer.AttributesRecord{
		User: proxied{alice}, Verb: "get", APIGroup: ichor.GroupName, Resource: "talosmachines", Name: "m1", ResourceRequest: true,
	}
	for name, tc := range map[string]struct {
		change func(*authorizer.AttributesRecord)
		may    string
		want   authorizer.Decision
		asked  []string
	}{
		"through the proxy, may all":         {func(*authorizer.AttributesRecord) {}, "", authorizer.DecisionAllow, []string{""}},
		"through the proxy, may this one":    {func(*authorizer.AttributesRecord) {}, "m1", authorizer.DecisionAllow, []string{"", "m1"}},
		"through the proxy, may another one": {func(*authorizer.AttributesRecord) {}, "m2", authorizer.DecisionNoOpinion, []string{"", "m1"}},
		"straight here, may all":             {func(a *authorizer.AttributesRecord) { a.User = alice }, "", authorizer.DecisionNoOpinion, []string{"m1"}},
		"straight here, may this one":        {func(a *authorizer.AttributesRecord) { a.User = alice }, "m1", authorizer.DecisionAllow, []string{"m1"}},
		"another group":                      {func(a *authorizer.AttributesRecord) { a.APIGroup = "apps" }, "", authorizer.DecisionNoOpinion, []string{"m1"}},
		"a list":                             {func(a *authorizer.AttributesRecord) { a.Name = "" }, "", authorizer.DecisionAllow, []string{""}},
	} {
		asked := []string{}
		a := request
		tc.change(&a)
		decision, _, err := broadFirst{authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			asked = append(asked, a.GetName())
			if a.GetUser().GetName() == "alice" && a.GetVerb() == "get" && a.GetName() == tc.may {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})}.Authorize(t.Context(), a)
		if err != nil || decision != tc.want {
			t.Errorf("%s: decision %v, %v", name, decision, err)
		}
		if !slices.Equal(asked, tc.asked) {
			t.Errorf("%s: asked about %q, want %q", name, asked, tc.asked)
		}
	}
}
