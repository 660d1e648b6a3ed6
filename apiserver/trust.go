// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

const (
	// lookupTimeout bounds the reading of the trusted CAs at the start.
	lookupTimeout = 30 * time.Second
	// trustConfigMap is where a kube-apiserver says whom its aggregated servers trust, in kube-system.
	trustConfigMap = "extension-apiserver-authentication"
)

// trust is who may say who a user is: the front proxy in headers, and the client CA in certificates. Both are read anew
// while the server runs, so whether they are sound is asked again and again.
type trust struct {
	header, client dynamiccertificates.CAContentProvider
	// names are the certificates of the header's CA that may name users; nil without a front proxy.
	names headerrequest.StringSliceProvider

	mu sync.Mutex
	// What was judged last, and how.
	headerSeen, clientSeen []byte
	judged                 error
}

// bundles are the trusted CAs as they were read at the start, and the names that the front proxy's certificates have.
type bundles struct {
	header, client []byte
	names          []string
}

// checkTrust refuses a configuration in which whoever has a client certificate could be anybody.
func (o *Options) checkTrust(ctx context.Context) (bundles, error) {
	seen, err := o.trustedAtStart(ctx)
	if err != nil {
		return bundles{}, err
	}
	return seen, errors.Join(distinctCAs(seen.header, seen.client), namedProxies(seen.header, seen.names))
}

func (o *Options) kubeForTrust() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.Recommended.Authentication.RemoteKubeConfigFile)
	if err != nil {
		return nil, fmt.Errorf("find the kube-apiserver for delegated authentication: %w", err)
	}
	// As many as the library's own client: requests of users wait for reviews of their tokens.
	config.QPS, config.Burst = 200, 400
	return kubernetes.NewForConfig(config)
}

// trustedAtStart returns the bundles that vouch for the front proxy and for client certificates, and the names of the
// front proxy's certificates: from files and flags, or from where the kube-apiserver publishes them.
func (o *Options) trustedAtStart(ctx context.Context) (seen bundles, err error) {
	authentication := o.Recommended.Authentication
	if authentication.RequestHeader.ClientCAFile != "" {
		if seen.header, err = os.ReadFile(authentication.RequestHeader.ClientCAFile); err != nil {
			return seen, fmt.Errorf("read the request-header CA: %w", err)
		}
		seen.names = authentication.RequestHeader.AllowedNames
	}
	switch {
	case authentication.ClientCert.CAContentProvider != nil:
		seen.client = authentication.ClientCert.CAContentProvider.CurrentCABundleContent()
	case authentication.ClientCert.ClientCA != "":
		if seen.client, err = os.ReadFile(authentication.ClientCert.ClientCA); err != nil {
			return seen, fmt.Errorf("read the client CA: %w", err)
		}
	}
	if authentication.SkipInClusterLookup || seen.header != nil && seen.client != nil {
		return seen, nil
	}
	kube, err := o.kubeForTrust()
	if err != nil {
		return seen, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, trustConfigMap, metav1.GetOptions{})
	if err != nil {
		advice := ""
		if apierrors.IsForbidden(err) {
			advice = "; bind the server's account to Role extension-apiserver-authentication-reader in kube-system"
		}
		return seen, fmt.Errorf("read the trusted CAs from ConfigMap kube-system/%s: %w%s", trustConfigMap, err, advice)
	}
	if seen.header == nil {
		seen.header, seen.names = []byte(found.Data["requestheader-client-ca-file"]), allowedNames(found)
	}
	if seen.client == nil {
		seen.client = []byte(found.Data["client-ca-file"])
	}
	return seen, nil
}

// allowedNames are the names that the ConfigMap gives, none if it can't be read.
func allowedNames(found *corev1.ConfigMap) []string {
	var names []string
	if err := json.Unmarshal([]byte(found.Data["requestheader-allowed-names"]), &names); err != nil {
		return nil
	}
	return names
}

// distinctCAs refuses a certificate authority that vouches both for clients and for the front proxy: whoever gets a
// client certificate could say to be anybody in the headers X-Remote-User and X-Remote-Group.
func distinctCAs(header, client []byte) error {
	if len(bytes.TrimSpace(header)) == 0 || len(bytes.TrimSpace(client)) == 0 {
		return nil
	}
	headers, err := certutil.ParseCertsPEM(header)
	if err != nil {
		return fmt.Errorf("parse the request-header CA: %w", err)
	}
	clients, err := certutil.ParseCertsPEM(client)
	if err != nil {
		return fmt.Errorf("parse the client CA: %w", err)
	}
	for _, h := range headers {
		for _, c := range clients {
			if bytes.Equal(h.RawSubjectPublicKeyInfo, c.RawSubjectPublicKeyInfo) {
				return fmt.Errorf("the request-header CA %q is a client CA too: whoever has a client certificate could be anybody; give the front proxy a CA of its own (--requestheader-client-ca-file of the kube-apiserver)", h.Subject)
			}
		}
	}
	return nil
}

// namedProxies refuses a front proxy's CA all of whose certificates may name users.
func namedProxies(header []byte, names []string) error {
	if len(bytes.TrimSpace(header)) > 0 && len(names) == 0 {
		return errors.New("the kube-apiserver has no --requestheader-allowed-names: every certificate of the front proxy's CA could name any user; set it to the name in --proxy-client-cert-file, for instance front-proxy-client")
	}
	return nil
}

// guard makes a server whose CAs became unsound while it ran say so, and serve nothing but its health.
func (t *trust) guard(config *genericapiserver.Config) {
	config.AddReadyzChecks(healthz.NamedCheck("ichor-trust", func(*http.Request) error { return t.sound() }))
	build := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return t.refusing(build(handler, c), c)
	}
}

// sound tells whether who vouches for users is sound. It is asked for each request, so it judges CAs anew only when they
// changed.
func (t *trust) sound() error {
	if t.header == nil {
		return nil
	}
	header, client := t.header.CurrentCABundleContent(), []byte(nil)
	if t.client != nil {
		client = t.client.CurrentCABundleContent()
	}
	t.mu.Lock()
	if !bytes.Equal(header, t.headerSeen) || !bytes.Equal(client, t.clientSeen) {
		t.headerSeen, t.clientSeen, t.judged = header, client, distinctCAs(header, client)
		if t.judged != nil {
			klog.ErrorS(t.judged, "The trusted CAs changed; requests are refused until they are told apart again")
		}
	}
	judged := t.judged
	t.mu.Unlock()
	if judged != nil || t.names == nil {
		return judged
	}
	return namedProxies(header, t.names.Value())
}

// refusing answers 503 for everything but health while trust is unsound: nobody knows then who is asking.
func (t *trust) refusing(handler http.Handler, c *genericapiserver.Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		err := t.sound()
		if err == nil || healthPath(req.URL.Path) {
			handler.ServeHTTP(w, req)
			return
		}
		responsewriters.ErrorNegotiated(apierrors.NewServiceUnavailable(err.Error()), c.Serializer, schema.GroupVersion{Version: "v1"}, w, req)
	})
}

func healthPath(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first == "livez" || first == "readyz" || first == "healthz"
}
