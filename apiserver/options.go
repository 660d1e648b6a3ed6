// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"
	basecompatibility "k8s.io/component-base/compatibility"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/registry/slots"
)

// EtcdPrefix is where everything is kept in etcd. The layout below it is frozen: <prefix>/<resource>/<name>.
const EtcdPrefix = "/" + v1alpha1.GroupName

// What a server that is told to end takes its time for. A pod's `terminationGracePeriodSeconds` must be longer than the
// sum of the delay and of --request-timeout (60 s), by which requests that were begun are bounded.
const (
	// shutdownDelay is how long the server works on as before, but for /readyz: until every kube-proxy and load balancer
	// has stopped to send it new connections.
	shutdownDelay = 20 * time.Second
	// shutdownWatchGrace is how long, after that, watches are ended one by one instead of all at once: each client comes
	// back to another replica with a request of its own.
	shutdownWatchGrace = 10 * time.Second
)

// Options are what a server is started with.
type Options struct {
	// Recommended are the options that an aggregated API server takes.
	Recommended *genericoptions.RecommendedOptions
	// Run are the options of any API server: limits, timeouts, shutdown.
	Run *genericoptions.ServerRunOptions
	// EtcdEmbeddedDir is where one etcd member in the process keeps its data; empty for an external etcd.
	EtcdEmbeddedDir string
	// Gate changes the control-plane gate; for tests.
	Gate []slots.Option
	// RightsPatience is how long a start waits for rights that the server's account lacks: they may be granted at the same
	// time. Then it is refused.
	RightsPatience time.Duration
	// EtcdTolerance is how long etcd may be away before the server says that it isn't ready.
	EtcdTolerance time.Duration

	// NodeStream is where machines' logs are read.
	NodeStream NodeStreamOptions

	globals basecompatibility.ComponentGlobalsRegistry
	// embedded are the endpoints of the etcd member in the process.
	embedded []string
}

// NewOptions returns the defaults.
func NewOptions() (*Options, error) {
	globals, err := componentGlobals()
	if err != nil {
		return nil, fmt.Errorf("register versions and features: %w", err)
	}
	o := &Options{
		Recommended: genericoptions.NewRecommendedOptions(EtcdPrefix, Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)),
		Run:         genericoptions.NewServerRunOptionsForComponent(Component, globals),
		globals:     globals,

		RightsPatience: 30 * time.Second,
		EtcdTolerance:  defaultEtcdTolerance,
		NodeStream:     NodeStreamOptions{URL: defaultNodeStreamURL},
	}
	// Requests have passed the kube-apiserver's priority and fairness already; here max-inflight is enough.
	o.Recommended.Features.EnablePriorityAndFairness = false
	o.Recommended.FeatureGate = globals.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	// Checks of etcd are registered by this package: readiness only, and tolerant.
	o.Recommended.Etcd.SkipHealthEndpoints = true
	// A self-signed certificate is made only where --cert-dir asks for it.
	o.Recommended.SecureServing.ServerCert.CertDirectory = ""
	o.Recommended.SecureServing.ServerCert.PairName = "ichor-apiserver"
	o.Run.ShutdownDelayDuration, o.Run.ShutdownWatchTerminationGracePeriod = shutdownDelay, shutdownWatchGrace
	return o, nil
}

// AddFlags adds the flags in named sets.
func (o *Options) AddFlags(sets *cliflag.NamedFlagSets) {
	fs := sets.FlagSet
	o.Recommended.Etcd.AddFlags(fs("etcd"))
	fs("etcd").StringVar(&o.EtcdEmbeddedDir, "etcd-embedded-dir", o.EtcdEmbeddedDir,
		"Run one etcd member in the process and keep its data in this directory, instead of using --etcd-servers. For one server only.")
	o.Recommended.SecureServing.AddFlags(fs("serving"))
	o.Recommended.Authentication.AddFlags(fs("authentication"))
	o.Recommended.Authorization.AddFlags(fs("authorization"))
	o.Recommended.Audit.AddFlags(fs("audit"))
	o.Recommended.Features.AddFlags(fs("features"))
	o.Recommended.CoreAPI.AddFlags(fs("kubernetes"))
	o.Recommended.Admission.AddFlags(fs("admission"))
	o.Recommended.Traces.AddFlags(fs("traces"))
	o.NodeStream.addFlags(fs("logs of machines"))
	o.Run.AddUniversalFlags(fs("server"))
	hide(fs("features"), "enable-priority-and-fairness")
	hide(fs("etcd"), "encryption-provider-config-automatic-reload")
	hide(fs("etcd"), "etcd-servers-overrides")
	if flag := fs("etcd").Lookup("encryption-provider-config"); flag != nil {
		flag.Usage = "File with the EncryptionConfiguration by which resources are encrypted before they are stored. Read again when it changes."
	}
	describeCertificates(fs("serving"))
}

// hide takes a flag out of the help that this server doesn't honour.
func hide(fs *pflag.FlagSet, name string) {
	if flag := fs.Lookup(name); flag != nil {
		flag.Hidden = true
	}
}

func describeCertificates(fs *pflag.FlagSet) {
	if flag := fs.Lookup("tls-cert-file"); flag != nil {
		flag.Usage = "File with the serving certificate, followed by those of its issuers. Read again when it changes. Required, unless --cert-dir asks for a self-signed one."
	}
	if flag := fs.Lookup("cert-dir"); flag != nil {
		flag.Usage = "Directory to make and keep a self-signed serving certificate in. It isn't renewed and differs between replicas: for trying things out."
	}
}

// Validate returns all that is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	if servers := o.Recommended.Etcd.StorageConfig.Transport.ServerList; o.EtcdEmbeddedDir != "" && !slices.Equal(servers, o.embedded) {
		errs = append(errs, errors.New("--etcd-embedded-dir and --etcd-servers exclude each other"))
	}
	errs = append(errs, o.Recommended.Etcd.Validate()...)
	errs = append(errs, o.Recommended.SecureServing.Validate()...)
	errs = append(errs, o.validateCertificate())
	errs = append(errs, o.Recommended.Audit.Validate()...)
	errs = append(errs, o.Recommended.Features.Validate()...)
	errs = append(errs, o.Recommended.CoreAPI.Validate()...)
	errs = append(errs, o.Recommended.Admission.Validate()...)
	errs = append(errs, o.Recommended.Traces.Validate()...)
	errs = append(errs, o.Run.Validate()...)
	errs = append(errs, o.validateAccess()...)
	errs = append(errs, o.validateAdmission()...)
	errs = append(errs, o.validateEtcdTransport()...)
	errs = append(errs, o.validateTLS()...)
	errs = append(errs, o.NodeStream.validate())
	return utilerrors.NewAggregate(errs)
}

func (o *Options) validateCertificate() error {
	cert := &o.Recommended.SecureServing.ServerCert
	files := cert.CertKey.CertFile != "" || cert.CertKey.KeyFile != ""
	switch {
	case files && (cert.CertKey.CertFile == "" || cert.CertKey.KeyFile == ""):
		return errors.New("--tls-cert-file and --tls-private-key-file go together")
	case !files && cert.CertDirectory == "" && cert.GeneratedCert == nil:
		return errors.New("no serving certificate: give --tls-cert-file and --tls-private-key-file, or --cert-dir for a self-signed one")
	}
	return nil
}

// validateAccess refuses options that would let in whom nobody vouched for. A nil group of options would install an
// authorizer that allows everything, or no authenticator at all.
// Source: k8s.io/apiserver, pkg/server/options/{authentication,authorization}.go.
func (o *Options) validateAccess() []error {
	if o.Recommended.Authentication == nil || o.Recommended.Authorization == nil {
		return []error{errors.New("authentication and authorization can't be left out")}
	}
	var errs []error
	errs = append(errs, o.Recommended.Authentication.Validate()...)
	errs = append(errs, o.Recommended.Authorization.Validate()...)
	if o.Recommended.Authorization.RemoteKubeConfigFileOptional || o.Recommended.Authentication.RemoteKubeConfigFileOptional {
		errs = append(errs, errors.New("authentication and authorization need the kube-apiserver: a kubeconfig can't be optional"))
	}
	if o.Recommended.Authentication.TolerateInClusterLookupFailure {
		errs = append(errs, errors.New("--authentication-tolerate-lookup-failure would make every request anonymous; leave it out"))
	}
	errs = append(errs, validateFrontProxy(o.Recommended.Authentication)...)
	for _, path := range o.Recommended.Authorization.AlwaysAllowPaths {
		if opensAPI(path) {
			errs = append(errs, fmt.Errorf("--authorization-always-allow-paths: %q would serve resources without authorization", path))
		}
	}
	return append(errs, o.validateKubeconfigs()...)
}

// validateFrontProxy refuses a server that couldn't tell the aggregation layer's requests from others.
func validateFrontProxy(authentication *genericoptions.DelegatingAuthenticationOptions) []error {
	header := authentication.RequestHeader
	switch {
	case header.ClientCAFile != "" && len(header.AllowedNames) == 0:
		return []error{errors.New("--requestheader-client-ca-file without --requestheader-allowed-names: every certificate of that CA could name any user; name the front proxy's, for instance front-proxy-client")}
	case header.ClientCAFile == "" && authentication.SkipInClusterLookup:
		return []error{errors.New("--authentication-skip-lookup without --requestheader-client-ca-file: every request of the aggregation layer would be anonymous; leave it out, or give that CA and --requestheader-allowed-names")}
	}
	return nil
}

// Complete fills what follows from other options.
func (o *Options) Complete() error {
	if etcd := o.Recommended.Etcd; etcd.EncryptionProviderConfigFilepath != "" {
		// Keys are rotated while servers run: a restart for each of the steps would be three.
		etcd.EncryptionProviderConfigAutomaticReload = true
	}
	serving := o.Recommended.SecureServing
	if serving.ServerCert.CertDirectory == "" {
		return nil
	}
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the name for a self-signed certificate: %w", err)
	}
	return serving.MaybeDefaultWithSelfSignedCerts(name, []string{"localhost"}, nil)
}

// UseEmbeddedEtcd makes a member in the process the storage.
func (o *Options) UseEmbeddedEtcd(etcd *EmbeddedEtcd) {
	o.embedded = []string{etcd.Endpoint}
	if len(o.Recommended.Etcd.StorageConfig.Transport.ServerList) == 0 {
		o.Recommended.Etcd.StorageConfig.Transport.ServerList = o.embedded
	}
}
