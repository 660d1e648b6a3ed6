// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
)

// authenticate sets who is asked who a user is: the front proxy, client certificates, and the kube-apiserver for tokens.
// It is what the library's delegated authentication does, but that the CAs are known from the first connection on. The
// library learns them some moments after it is ready; a kube-apiserver that connects in between isn't asked for its
// certificate, and every user it names is anonymous for as long as it keeps the connection.
// Source: k8s.io/apiserver, pkg/server/options/authentication.go.
func (o *Options) authenticate(ctx context.Context, config *genericapiserver.Config, seen bundles) (*trust, error) {
	options := o.Recommended.Authentication
	kube, err := o.kubeForTrust()
	if err != nil {
		return nil, err
	}
	delegated := authenticatorfactory.DelegatingAuthenticatorConfig{
		// Health is for everybody; what anonymous may do besides is the authorizer's to say.
		Anonymous: &apiserverconfig.AnonymousAuthConfig{Enabled: true}, CacheTTL: options.CacheTTL, WebhookRetryBackoff: options.WebhookRetryBackoff,
		TokenAccessReviewTimeout: options.TokenRequestTimeout, TokenAccessReviewClient: kube.AuthenticationV1(),
	}
	if delegated.ClientCertificateCAContentProvider, err = o.clientCA(kube, seen); err != nil {
		return nil, err
	}
	if delegated.RequestHeaderConfig, err = o.frontProxy(ctx, kube, seen); err != nil {
		return nil, err
	}
	info := &config.Authentication
	info.RequestHeaderConfig = delegated.RequestHeaderConfig
	t := &trust{client: delegated.ClientCertificateCAContentProvider}
	if header := delegated.RequestHeaderConfig; header != nil {
		t.header, t.names = header.CAContentProvider, header.AllowedClientNames
	}
	for _, provider := range []dynamiccertificates.CAContentProvider{t.client, t.header} {
		if provider == nil {
			continue
		}
		if err := info.ApplyClientCert(provider, config.SecureServing); err != nil {
			return nil, fmt.Errorf("trust %s: %w", provider.Name(), err)
		}
	}
	authenticator, definitions, err := delegated.New()
	if err != nil {
		return nil, fmt.Errorf("build authentication: %w", err)
	}
	info.Authenticator, config.OpenAPIConfig.SecurityDefinitions = knowProxied(delegated.RequestHeaderConfig, authenticator), definitions
	return t, nil
}

// clientCA is what vouches for client certificates; nil if nothing does.
func (o *Options) clientCA(kube kubernetes.Interface, seen bundles) (dynamiccertificates.CAContentProvider, error) {
	options := o.Recommended.Authentication
	switch {
	case options.ClientCert != genericoptions.ClientCertAuthenticationOptions{}:
		return options.ClientCert.GetClientCAContentProvider()
	case options.SkipInClusterLookup:
		return nil, nil
	}
	followed, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", metav1.NamespaceSystem, trustConfigMap, "client-ca-file", kube)
	if err != nil {
		return nil, fmt.Errorf("follow the client CA: %w", err)
	}
	return prime(followed, seen.client)
}

// frontProxy is who may name users; nil if nobody may.
func (o *Options) frontProxy(ctx context.Context, kube kubernetes.Interface, seen bundles) (*authenticatorfactory.RequestHeaderConfig, error) {
	options := o.Recommended.Authentication
	if options.RequestHeader.ClientCAFile != "" || options.SkipInClusterLookup {
		return options.RequestHeader.ToAuthenticationRequestHeaderConfig()
	}
	followed, err := dynamiccertificates.NewDynamicCAFromConfigMapController("front-proxy-ca", metav1.NamespaceSystem, trustConfigMap, "requestheader-client-ca-file", kube)
	if err != nil {
		return nil, fmt.Errorf("follow the front proxy's CA: %w", err)
	}
	headers := headerrequest.NewRequestHeaderAuthRequestController(trustConfigMap, metav1.NamespaceSystem, kube,
		"requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers", "requestheader-extra-headers-prefix", "requestheader-allowed-names")
	if err := headers.RunOnce(ctx); err != nil {
		return nil, fmt.Errorf("read the front proxy's headers: %w", err)
	}
	ca, err := prime(&genericoptions.DynamicRequestHeaderController{ConfigMapCAController: followed, RequestHeaderAuthRequestController: headers}, seen.header)
	if err != nil {
		return nil, err
	}
	return &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   ca,
		UsernameHeaders:     headerrequest.StringSliceProviderFunc(headers.UsernameHeaders),
		UIDHeaders:          headerrequest.StringSliceProviderFunc(headers.UIDHeaders),
		GroupHeaders:        headerrequest.StringSliceProviderFunc(headers.GroupHeaders),
		ExtraHeaderPrefixes: headerrequest.StringSliceProviderFunc(headers.ExtraHeaderPrefixes),
		AllowedClientNames:  headerrequest.StringSliceProviderFunc(headers.AllowedClientNames),
	}, nil
}

// followed is a provider that learns its CA once it runs.
type followed interface {
	dynamiccertificates.CAContentProvider
	dynamiccertificates.ControllerRunner
}

// primed is a followed provider that knows what was read at the start until it has learnt.
type primed struct {
	followed
	first dynamiccertificates.CAContentProvider
}

func prime(provider followed, bundle []byte) (dynamiccertificates.CAContentProvider, error) {
	if len(bundle) == 0 {
		return provider, nil
	}
	first, err := dynamiccertificates.NewStaticCAContent(provider.Name(), bundle)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s", provider.Name()), err)
	}
	return primed{provider, first}, nil
}

// CurrentCABundleContent is the bundle.
func (p primed) CurrentCABundleContent() []byte {
	if learnt := p.followed.CurrentCABundleContent(); len(learnt) > 0 {
		return learnt
	}
	return p.first.CurrentCABundleContent()
}

// VerifyOptions are for certificates of the bundle.
func (p primed) VerifyOptions() (x509.VerifyOptions, bool) {
	if learnt, ok := p.followed.VerifyOptions(); ok {
		return learnt, true
	}
	return p.first.VerifyOptions()
}
