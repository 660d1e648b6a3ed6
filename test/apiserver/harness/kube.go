// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kube is the part of a kube-apiserver that an aggregated API server talks to: it says who has a token, what he may do,
// and which admission policies there are. Real requests over real TLS, answers from a table.
type Kube struct {
	server   *httptest.Server
	trusted  *changing
	denied   atomic.Pointer[map[string]bool]
	reviews  atomic.Int64
	upstream atomic.Pointer[httputil.ReverseProxy]
}

// initialEventsEnd marks the bookmark that ends the initial events of a streamed list.
const initialEventsEnd = "k8s.io/initial-events-end"

// startKube starts the stub with the given admission policies, by resource.
func startKube(t testing.TB, objects map[string][]any, authorities *authorities) *Kube {
	t.Helper()
	k := &Kube{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", k.reviewToken)
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", k.reviewAccess)
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", k.reviewOwnAccess)
	authentication := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication", ResourceVersion: "1", UID: "1"},
		Data: map[string]string{
			"client-ca-file":                     string(authorities.client.certPEM),
			"requestheader-client-ca-file":       string(authorities.frontProxy.certPEM),
			"requestheader-allowed-names":        `["front-proxy"]`,
			"requestheader-username-headers":     `["X-Remote-User"]`,
			"requestheader-group-headers":        `["X-Remote-Group"]`,
			"requestheader-uid-headers":          `["X-Remote-Uid"]`,
			"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
		},
	}
	k.trusted = newChanging(authentication)
	mux.HandleFunc("GET /api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", func(w http.ResponseWriter, _ *http.Request) {
		object, _ := k.trusted.now()
		write(w, object)
	})
	mux.HandleFunc("GET /api/v1/namespaces/kube-system/configmaps", k.trusted.serve)
	mux.HandleFunc("GET /api/v1/namespaces", k.collection("v1", "NamespaceList", nil))
	for resource, kind := range map[string]string{
		"mutatingwebhookconfigurations": "MutatingWebhookConfigurationList", "validatingwebhookconfigurations": "ValidatingWebhookConfigurationList",
		"mutatingadmissionpolicies": "MutatingAdmissionPolicyList", "mutatingadmissionpolicybindings": "MutatingAdmissionPolicyBindingList",
		"validatingadmissionpolicies": "ValidatingAdmissionPolicyList", "validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBindingList",
	} {
		mux.HandleFunc("GET /apis/admissionregistration.k8s.io/v1/"+resource, k.collection("admissionregistration.k8s.io/v1", kind, objects[resource]))
	}
	mux.HandleFunc("GET /openapi/v3", k.aggregate)
	mux.HandleFunc("GET /openapi/v3/", k.aggregate)
	k.server = httptest.NewTLSServer(mux)
	t.Cleanup(func() {
		k.server.CloseClientConnections()
		k.server.Close()
	})
	return k
}

// aggregate answers with the schema of the aggregated server, as the aggregation layer does.
func (k *Kube) aggregate(w http.ResponseWriter, req *http.Request) {
	proxy := k.upstream.Load()
	if proxy == nil {
		http.Error(w, "the aggregated server isn't up", http.StatusServiceUnavailable)
		return
	}
	proxy.ServeHTTP(w, req)
}

// aggregateTo sets where the aggregated server is.
func (k *Kube) aggregateTo(t testing.TB, config *rest.Config) {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatalf("parse server's URL: %v", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatalf("make transport: %v", err)
	}
	k.upstream.CompareAndSwap(nil, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization")
		},
		Transport: transport,
	})
}

// AccessReviews is how often the server asked what somebody may do.
func (k *Kube) AccessReviews() int64 { return k.reviews.Load() }

// kubeconfig writes the file by which the server reaches the stub.
func (k *Kube) kubeconfig(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"stub": {
			Server: k.server.URL, CertificateAuthorityData: pemCertificate(k.server.Certificate().Raw),
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"server": {Token: "ichor-apiserver"}},
		Contexts:       map[string]*clientcmdapi.Context{"stub": {Cluster: "stub", AuthInfo: "server"}},
		CurrentContext: "stub",
	}
	if err := clientcmd.WriteToFile(config, path); err != nil {
		t.Fatalf("write kubeconfig: %v", err)
	}
	return path
}

// reviewToken takes the token as the name of the user; "system:masters" is that group's only member here.
func (k *Kube) reviewToken(w http.ResponseWriter, req *http.Request) {
	var review authenticationv1.TokenReview
	if !read(w, req, &review) {
		return
	}
	name := review.Spec.Token
	groups := []string{"system:authenticated"}
	if name == "root" {
		groups = append(groups, "system:masters")
	}
	review.Status = authenticationv1.TokenReviewStatus{
		Authenticated: true, User: authenticationv1.UserInfo{Username: name, UID: "uid-of-" + name, Groups: groups},
	}
	write(w, &review)
}

func (k *Kube) reviewAccess(w http.ResponseWriter, req *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if !read(w, req, &review) {
		return
	}
	k.reviews.Add(1)
	review.Status.Allowed = Allowed(review.Spec.User, review.Spec.ResourceAttributes)
	write(w, &review)
}

// Deny takes rights from the server's own account, each as "VERB RESOURCE", in place of those denied before.
func (k *Kube) Deny(rights ...string) {
	denied := map[string]bool{}
	for _, right := range rights {
		denied[right] = true
	}
	k.denied.Store(&denied)
}

// reviewOwnAccess allows the server all that it asks for, but what was denied: its rights are the manifests' business.
func (k *Kube) reviewOwnAccess(w http.ResponseWriter, req *http.Request) {
	var review authorizationv1.SelfSubjectAccessReview
	if !read(w, req, &review) {
		return
	}
	asked := review.Spec.ResourceAttributes
	denied := k.denied.Load()
	review.Status.Allowed = denied == nil || !(*denied)[asked.Verb+" "+asked.Resource]
	write(w, &review)
}

// collection serves lists and watches of objects that never change.
func (k *Kube) collection(apiVersion, kind string, objects []any) http.HandlerFunc {
	if objects == nil {
		objects = []any{}
	}
	return func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Query().Get("watch") == "" {
			write(w, map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"resourceVersion": "1"}, "items": objects})
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if req.URL.Query().Get("sendInitialEvents") == "true" {
			for _, object := range objects {
				fmt.Fprintln(w, event("ADDED", object))
			}
			fmt.Fprintln(w, event("BOOKMARK", map[string]any{
				"apiVersion": apiVersion, "kind": strings.TrimSuffix(kind, "List"),
				"metadata": map[string]any{"resourceVersion": "1", "annotations": map[string]any{initialEventsEnd: "true"}},
			}))
		}
		if flusher, ok := w.(http.Flusher); ok {
			flusher.Flush()
		}
		<-req.Context().Done()
	}
}

func event(kind string, object any) string {
	text, err := json.Marshal(map[string]any{"type": kind, "object": object})
	if err != nil {
		panic(err) // the harness's own objects
	}
	return string(text)
}

func write(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(object); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// read decodes what a client sends, as JSON or as Kubernetes' protobuf.
func read(w http.ResponseWriter, req *http.Request, into runtime.Object) bool {
	body, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
	if err == nil {
		_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, into)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}
