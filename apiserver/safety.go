// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	mutatingadmissionpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingadmissionpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"
)

// hostAdmission are the plugins by which the policies and webhooks of the cluster hold for Ichor's resources too.
var hostAdmission = []string{
	mutatingadmissionpolicy.PluginName, mutatingwebhook.PluginName, validatingadmissionpolicy.PluginName, validatingwebhook.PluginName,
}

// validateAdmission refuses a server on which the cluster's own rules wouldn't hold.
func (o *Options) validateAdmission() []error {
	if o.Recommended.Admission == nil {
		return []error{errors.New("admission can't be left out: the cluster's policies and webhooks would not hold for Ichor's resources")}
	}
	var errs []error
	for _, name := range o.Recommended.Admission.DisablePlugins {
		if slices.Contains(hostAdmission, name) {
			errs = append(errs, fmt.Errorf("--disable-admission-plugins: without %s the cluster's policies or webhooks would not hold for Ichor's resources; leave it on, and exempt resources in the policy itself", name))
		}
	}
	return errs
}

// validateEtcdTransport refuses an etcd that others on the way could read or be: it holds everything, and whoever
// writes to it is root.
func (o *Options) validateEtcdTransport() []error {
	transport := o.Recommended.Etcd.StorageConfig.Transport
	var errs []error
	for _, server := range transport.ServerList {
		endpoint, err := url.Parse(server)
		switch {
		case err != nil || endpoint.Scheme == "":
			errs = append(errs, fmt.Errorf("--etcd-servers: %q is no URL; write https://HOST:2379", server))
		case endpoint.Scheme == "unix" || endpoint.Scheme == "unixs" || loopback(endpoint.Hostname()):
		case endpoint.Scheme != "https":
			errs = append(errs, fmt.Errorf("--etcd-servers: %s isn't encrypted and nobody vouches for it; use https, with --etcd-cafile, --etcd-certfile and --etcd-keyfile", server))
		case transport.CertFile == "" || transport.KeyFile == "":
			errs = append(errs, fmt.Errorf("--etcd-servers: %s without a client certificate would have to be an etcd that anybody may write to; give --etcd-certfile and --etcd-keyfile", server))
		}
	}
	if len(o.Recommended.Etcd.EtcdServersOverrides) > 0 {
		errs = append(errs, errors.New("--etcd-servers-overrides: all resources are kept in one etcd; leave it out"))
	}
	return errs
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// validateTLS refuses versions and ciphers that are broken.
func (o *Options) validateTLS() []error {
	serving := o.Recommended.SecureServing
	var errs []error
	if version, err := cliflag.TLSVersion(serving.MinTLSVersion); serving.MinTLSVersion != "" && (err != nil || version < tls.VersionTLS12) {
		errs = append(errs, fmt.Errorf("--tls-min-version: %s is broken; use VersionTLS12 or VersionTLS13, or leave it out", serving.MinTLSVersion))
	}
	insecure := cliflag.InsecureTLSCiphers()
	for _, name := range serving.CipherSuites {
		if _, found := insecure[name]; found {
			errs = append(errs, fmt.Errorf("--tls-cipher-suites: %s is broken; leave it out", name))
		}
	}
	return errs
}

// validateKubeconfigs refuses to believe a kube-apiserver for which nobody vouches: it says who everybody is and what
// he may do. Files that can't be read are found by whoever reads them.
func (o *Options) validateKubeconfigs() []error {
	var errs []error
	for _, file := range []struct{ flag, path string }{
		{"--kubeconfig", o.Recommended.CoreAPI.CoreAPIKubeconfigPath},
		{"--authentication-kubeconfig", o.Recommended.Authentication.RemoteKubeConfigFile},
		{"--authorization-kubeconfig", o.Recommended.Authorization.RemoteKubeConfigFile},
	} {
		if file.path == "" {
			continue
		}
		config, err := clientcmd.BuildConfigFromFlags("", file.path)
		if err != nil {
			continue
		}
		if config.Insecure || strings.HasPrefix(config.Host, "http://") {
			errs = append(errs, fmt.Errorf("%s: %s reaches %s without verifying it, so anybody on the way could say who is who; use https with certificate-authority", file.flag, file.path, config.Host))
		}
	}
	return errs
}
