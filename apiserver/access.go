// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
)

// lookupTimeout bounds the reading of the trusted CAs at the start.
const lookupTimeout = 30 * time.Second

// opensAPI tells whether a path that skips authorization covers resources.
func opensAPI(path string) bool {
	path = "/" + strings.TrimPrefix(path, "/")
	prefix, wildcard := strings.CutSuffix(path, "*")
	return path == "/api" || path == "/apis" || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/apis/") ||
		wildcard && strings.HasPrefix("/apis/", prefix)
}

// checkAccess refuses a configuration in which everything is allowed, or nobody is known.
func checkAccess(config *genericapiserver.Config) error {
	if config.Authorization.Authorizer == nil {
		return errors.New("start without an authorizer: refused, everything would be allowed")
	}
	if config.Authentication.Authenticator == nil {
		return errors.New("start without an authenticator: refused")
	}
	return nil
}

// checkTrust refuses a configuration in which whoever has a client certificate could be anybody.
func (o *Options) checkTrust(ctx context.Context) error {
	header, client, err := o.trustedCAs(ctx)
	if err != nil {
		return err
	}
	return distinctCAs(header, client)
}

// trustedCAs returns the bundles that vouch for the front proxy and for client certificates: from files, or as the
// delegated authentication finds them, whose own copies are filled only once it runs.
// Source: k8s.io/apiserver, pkg/server/options/authentication.go.
func (o *Options) trustedCAs(ctx context.Context) (header, client []byte, err error) {
	authentication := o.Recommended.Authentication
	if authentication.RequestHeader.ClientCAFile != "" {
		if header, err = os.ReadFile(authentication.RequestHeader.ClientCAFile); err != nil {
			return nil, nil, fmt.Errorf("read the request-header CA: %w", err)
		}
	}
	switch {
	case authentication.ClientCert.CAContentProvider != nil:
		client = authentication.ClientCert.CAContentProvider.CurrentCABundleContent()
	case authentication.ClientCert.ClientCA != "":
		if client, err = os.ReadFile(authentication.ClientCert.ClientCA); err != nil {
			return nil, nil, fmt.Errorf("read the client CA: %w", err)
		}
	}
	if authentication.SkipInClusterLookup || header != nil && client != nil {
		return header, client, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", authentication.RemoteKubeConfigFile)
	if err != nil {
		return nil, nil, fmt.Errorf("find the kube-apiserver for delegated authentication: %w", err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("read the trusted CAs from ConfigMap kube-system/extension-apiserver-authentication: %w", err)
	}
	if header == nil {
		header = []byte(found.Data["requestheader-client-ca-file"])
	}
	if client == nil {
		client = []byte(found.Data["client-ca-file"])
	}
	return header, client, nil
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
				return fmt.Errorf("the request-header CA %q is a client CA too: whoever has a client certificate could be anybody; give the front proxy a CA of its own", h.Subject)
			}
		}
	}
	return nil
}
