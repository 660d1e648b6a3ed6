// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Strategic merge patches are served for no kind, as with custom resources: within fields that hold somebody else's
// objects (Helm values, Talos documents) they fail, and swallow "$patch" where it is meant for Talos. Clients that read
// the OpenAPI then use JSON merge patches, and others get a 415.
const strategicMerge = string(types.StrategicMergePatchType)

var servedPatches = []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType)}

// withoutStrategicMerge answers strategic merge patches of the group's resources with a 415.
func withoutStrategicMerge(next http.Handler) http.Handler {
	version := v1alpha1.SchemeGroupVersion
	prefix := "/apis/" + v1alpha1.GroupName + "/"
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mediaType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
		if req.Method == http.MethodPatch && strings.TrimSpace(mediaType) == strategicMerge && strings.HasPrefix(req.URL.Path, prefix) {
			responsewriters.ErrorNegotiated(negotiation.NewUnsupportedMediaTypeError(servedPatches), Codecs,
				schema.GroupVersion{Group: version.Group, Version: version.Version}, w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// protobufType is the media type of Kubernetes' protobuf.
const protobufType = "application/vnd.kubernetes.protobuf"

// withJSONForObjects takes protobuf out of what a client accepts for the group's objects, which are served as JSON and
// YAML only: a client that likes protobuf better and takes JSON too gets JSON instead of a 406. Metadata alone
// ("as=PartialObjectMetadata"), which the garbage collector asks for, goes out as protobuf.
func withJSONForObjects(next http.Handler) http.Handler {
	prefix := "/apis/" + v1alpha1.GroupName + "/"
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if accept := req.Header.Get("Accept"); strings.HasPrefix(req.URL.Path, prefix) && strings.Contains(accept, protobufType) {
			if kept := withoutPlainProtobuf(accept); kept != "" {
				req.Header.Set("Accept", kept)
			}
		}
		next.ServeHTTP(w, req)
	})
}

func withoutPlainProtobuf(accept string) string {
	var kept []string
	for clause := range strings.SplitSeq(accept, ",") {
		mediaType, parameters, _ := strings.Cut(clause, ";")
		if strings.TrimSpace(mediaType) == protobufType && !strings.Contains(parameters, "as=") {
			continue
		}
		kept = append(kept, clause)
	}
	return strings.Join(kept, ",")
}

func withoutStrategicMergeV2(swagger *spec.Swagger) (*spec.Swagger, error) {
	if swagger.Paths == nil {
		return swagger, nil
	}
	for _, path := range swagger.Paths.Paths {
		if path.Patch != nil {
			path.Patch.Consumes = without(path.Patch.Consumes)
		}
	}
	return swagger, nil
}

func withoutStrategicMergeV3(document *spec3.OpenAPI) (*spec3.OpenAPI, error) {
	if document.Paths == nil {
		return document, nil
	}
	for _, path := range document.Paths.Paths {
		if path.Patch != nil && path.Patch.RequestBody != nil {
			delete(path.Patch.RequestBody.Content, strategicMerge)
		}
	}
	return document, nil
}

func without(types []string) []string {
	var kept []string
	for _, t := range types {
		if t != strategicMerge {
			kept = append(kept, t)
		}
	}
	return kept
}
