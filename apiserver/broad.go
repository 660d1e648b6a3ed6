// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// proxied is a user for whom the front proxy vouched, and whose request it therefore let through: the kube-apiserver
// authorises a request, by the object's name, before it proxies it.
type proxied struct{ user.Info }

// knowProxied marks the users of requests that come from the front proxy. Everybody else is authenticated by next.
func knowProxied(header *authenticatorfactory.RequestHeaderConfig, next authenticator.Request) authenticator.Request {
	if header == nil {
		return next
	}
	front := group.NewAuthenticatedGroupAdder(headerrequest.NewDynamicVerifyOptionsSecure(header.CAContentProvider.VerifyOptions,
		header.AllowedClientNames, header.UsernameHeaders, header.UIDHeaders, header.GroupHeaders, header.ExtraHeaderPrefixes))
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := front.AuthenticateRequest(req)
		if err != nil || !ok {
			return next.AuthenticateRequest(req)
		}
		marked := *response
		marked.User = proxied{response.User}
		return &marked, true, nil
	})
}

// broadFirst asks, of a proxied request for one object, first whether the user may do it to all objects of the resource,
// and by the name only if not. The answer to the broad question is the same for all names and is cached, so a fleet of
// thousands of machines doesn't ask the kube-apiserver about each, at the 200 questions a second that there may be. That
// adds nothing to what the user may do: whoever may for all may for each by RBAC, and an authorizer that denies single
// names has done so in the kube-apiserver, before the request came here. A request that came another way, or under
// another user by impersonation, is asked about by name.
type broadFirst struct{ authorizer.Authorizer }

// Authorize asks one or two questions.
func (b broadFirst) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if _, ok := a.GetUser().(proxied); ok && a.IsResourceRequest() && a.GetAPIGroup() == ichor.GroupName && a.GetName() != "" {
		if decision, reason, err := b.Authorizer.Authorize(ctx, unnamed{a}); decision == authorizer.DecisionAllow {
			return decision, reason, err
		}
	}
	return b.Authorizer.Authorize(ctx, a)
}

// unnamed is a request without the object's name.
type unnamed struct{ authorizer.Attributes }

// GetName is empty.
func (unnamed) GetName() string { return "" }
