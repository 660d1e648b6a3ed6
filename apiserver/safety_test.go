// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	genericoptions "k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"
)

// kubeconfigOf writes a kubeconfig with the lines about its cluster.
func kubeconfigOf(t *testing.T, cluster string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {%s}}]\nusers: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", cluster)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func etcdServers(o *Options, servers ...string) {
	o.Recommended.Etcd.StorageConfig.Transport.ServerList = servers
}

func TestOptionsThatAreRefused(t *testing.T) {
	t.Parallel()
	unverified, plain := kubeconfigOf(t, "server: 'https://10.0.0.1:6443', insecure-skip-tls-verify: true"), kubeconfigOf(t, "server: 'http://10.0.0.1:8080'")
	for name, tc := range map[string]struct {
		change func(*Options)
		// want are words of the refusal: what, and what to do.
		want []string
	}{
		"no storage":   {func(o *Options) { etcdServers(o) }, []string{"--etcd-servers must be"}},
		"two storages": {func(o *Options) { o.EtcdEmbeddedDir = "/x" }, []string{"--etcd-embedded-dir and --etcd-servers"}},
		"no certificate": {func(o *Options) {
			o.Recommended.SecureServing.ServerCert.CertKey.CertFile, o.Recommended.SecureServing.ServerCert.CertKey.KeyFile = "", ""
		}, []string{"no serving certificate", "--tls-cert-file", "--cert-dir"}},
		"a certificate without its key": {func(o *Options) { o.Recommended.SecureServing.ServerCert.CertKey.KeyFile = "" }, []string{"go together"}},
		"no authorization":              {func(o *Options) { o.Recommended.Authorization = nil }, []string{"can't be left out"}},
		"no authentication":             {func(o *Options) { o.Recommended.Authentication = nil }, []string{"can't be left out"}},
		"authorization if there is any": {func(o *Options) { o.Recommended.Authorization.RemoteKubeConfigFileOptional = true }, []string{"can't be optional"}},
		"everybody anonymous":           {func(o *Options) { o.Recommended.Authentication.TolerateInClusterLookupFailure = true }, []string{"--authentication-tolerate-lookup-failure", "leave it out"}},
		"no front proxy": {func(o *Options) { o.Recommended.Authentication.SkipInClusterLookup = true },
			[]string{"--authentication-skip-lookup", "anonymous", "--requestheader-client-ca-file"}},
		"a front proxy of any name": {func(o *Options) { o.Recommended.Authentication.RequestHeader.ClientCAFile = "ca.crt" },
			[]string{"--requestheader-allowed-names", "could name any user", "front-proxy-client"}},
		"resources for everybody": {func(o *Options) { o.Recommended.Authorization.AlwaysAllowPaths = []string{"/apis/*"} },
			[]string{"--authorization-always-allow-paths", "without authorization"}},
		"a kube-apiserver that nobody verifies": {func(o *Options) { o.Recommended.Authorization.RemoteKubeConfigFile = unverified },
			[]string{"--authorization-kubeconfig", "without verifying it", "certificate-authority"}},
		"users from an unencrypted kube-apiserver": {func(o *Options) { o.Recommended.Authentication.RemoteKubeConfigFile = plain },
			[]string{"--authentication-kubeconfig", "without verifying it", "https"}},
		"policies from an unencrypted kube-apiserver": {func(o *Options) { o.Recommended.CoreAPI.CoreAPIKubeconfigPath = plain }, []string{"--kubeconfig: "}},
		"no admission":           {func(o *Options) { o.Recommended.Admission = nil }, []string{"admission can't be left out"}},
		"no validating policies": {func(o *Options) { o.Recommended.Admission.DisablePlugins = []string{"ValidatingAdmissionPolicy"} }, []string{"--disable-admission-plugins", "ValidatingAdmissionPolicy", "leave it on"}},
		"no mutating policies":   {func(o *Options) { o.Recommended.Admission.DisablePlugins = []string{"MutatingAdmissionPolicy"} }, []string{"MutatingAdmissionPolicy"}},
		"no webhooks": {func(o *Options) {
			o.Recommended.Admission.DisablePlugins = []string{"ValidatingAdmissionWebhook", "MutatingAdmissionWebhook"}
		}, []string{"without ValidatingAdmissionWebhook", "without MutatingAdmissionWebhook"}},
		"an etcd without TLS":            {func(o *Options) { etcdServers(o, "http://10.0.0.1:2379") }, []string{"http://10.0.0.1:2379 isn't encrypted", "--etcd-certfile"}},
		"one of several without TLS":     {func(o *Options) { etcdServers(o, "http://127.0.0.1:2379", "http://etcd-2:2379") }, []string{"http://etcd-2:2379"}},
		"an etcd that anybody writes to": {func(o *Options) { etcdServers(o, "https://10.0.0.1:2379") }, []string{"without a client certificate", "--etcd-keyfile"}},
		"an etcd that is no URL":         {func(o *Options) { etcdServers(o, "etcd") }, []string{"is no URL"}},
		"a part in another etcd": {func(o *Options) {
			o.Recommended.Etcd.EtcdServersOverrides = []string{"ichor.maesh.dev/ichorusers#https://b:2379"}
		}, []string{"--etcd-servers-overrides", "leave it out"}},
		"an old version of TLS":                    {func(o *Options) { o.Recommended.SecureServing.MinTLSVersion = "VersionTLS10" }, []string{"--tls-min-version", "VersionTLS12"}},
		"a broken cipher":                          {func(o *Options) { o.Recommended.SecureServing.CipherSuites = []string{"TLS_RSA_WITH_RC4_128_SHA"} }, []string{"--tls-cipher-suites", "RC4"}},
		"keys to encrypt with, reloaded from none": {func(o *Options) { o.Recommended.Etcd.EncryptionProviderConfigAutomaticReload = true }, []string{"--encryption-provider-config"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := soundOptions(t)
			tc.change(o)
			err := o.Validate()
			for _, words := range tc.want {
				if err == nil || !strings.Contains(err.Error(), words) {
					t.Errorf("%v, want an error about %q", err, words)
				}
			}
		})
	}
}

func TestOptionsThatAreSound(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Options){
		"an etcd beside it, without TLS": func(o *Options) { etcdServers(o, "http://localhost:2379", "http://[::1]:2379") },
		"an etcd in the process":         func(o *Options) { etcdServers(o, "unix:///run/etcd.sock") },
		"an etcd elsewhere, with TLS": func(o *Options) {
			etcdServers(o, "https://10.0.0.1:2379")
			o.Recommended.Etcd.StorageConfig.Transport.CertFile, o.Recommended.Etcd.StorageConfig.Transport.KeyFile = "etcd.crt", "etcd.key"
		},
		"a verified kube-apiserver": func(o *Options) {
			o.Recommended.Authorization.RemoteKubeConfigFile = kubeconfigOf(t, "server: 'https://10.0.0.1:6443'")
		},
		"a front proxy by name": func(o *Options) {
			o.Recommended.Authentication.SkipInClusterLookup = true
			o.Recommended.Authentication.RequestHeader.ClientCAFile = "ca.crt"
			o.Recommended.Authentication.RequestHeader.AllowedNames = []string{"front-proxy-client"}
		},
		"a plugin that none of the cluster's rules needs": func(o *Options) { o.Recommended.Admission.DisablePlugins = []string{"NamespaceLifecycle"} },
		"a self-signed certificate that was asked for": func(o *Options) {
			o.Recommended.SecureServing.ServerCert.CertKey = genericoptions.CertKey{}
			o.Recommended.SecureServing.ServerCert.CertDirectory = "/x"
		},
	} {
		o := soundOptions(t)
		change(o)
		if err := o.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// By flags, as a person sets them: nothing that he can write gets a server without access control.
func TestFlagsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--authentication-tolerate-lookup-failure"}, {"--authentication-skip-lookup"}, {"--authorization-always-allow-paths=*"},
		{"--disable-admission-plugins=MutatingAdmissionPolicy"}, {"--etcd-servers=http://10.0.0.1:2379"}, {"--tls-min-version=VersionTLS11"},
		{"--requestheader-client-ca-file=x"},
	} {
		o := soundOptions(t)
		var sets cliflag.NamedFlagSets
		o.AddFlags(&sets)
		name, _, _ := strings.Cut(strings.TrimPrefix(args[0], "--"), "=")
		for _, set := range sets.FlagSets {
			if set.Lookup(name) == nil {
				continue
			}
			if err := set.Parse(args); err != nil {
				t.Errorf("%v: %v", args, err)
			}
		}
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v, want a refusal that names the flag", args, err)
		}
	}
}
