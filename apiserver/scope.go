// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// withoutNamespaces answers paths that put the group's resources into a namespace with a 404 that says where they are:
// none of them belongs to one, and the library's own answer is a page not found.
func withoutNamespaces(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || info.APIGroup != v1alpha1.GroupName || info.Namespace == "" {
			next.ServeHTTP(w, req)
			return
		}
		refused := apierrors.NewNotFound(ichor.Resource(info.Resource), info.Name)
		refused.ErrStatus.Message = fmt.Sprintf("%s belong to no namespace, so there are none in %q; they are at /apis/%s/%s/%s",
			info.Resource, info.Namespace, info.APIGroup, info.APIVersion, info.Resource)
		responsewriters.ErrorNegotiated(refused, Codecs, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
	})
}
