// SPDX-License-Identifier: Apache-2.0

// Package harness runs whole ichor-apiservers for tests: in the process, on one real etcd, behind a stub of the
// kube-apiserver that reviews tokens and access. Each environment has a prefix of its own in etcd, so tests run in
// parallel.
package harness

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"maesh.dev/ichor/apiserver"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/registry/slots"
)

// startTimeout bounds how long a server may take to be ready on a busy machine.
const startTimeout = 2 * time.Minute

// Env is an environment of a test: servers that share one storage.
type Env struct {
	// Kube is the stub of the kube-apiserver.
	Kube *Kube
	// Prefix is where the environment's objects are in etcd.
	Prefix string
	// Etcd is a client of the storage.
	Etcd *clientv3.Client
	// URLs of the servers.
	URLs []string

	authorities *authorities
	stops       []func() error
}

// Option changes an environment.
type Option func(*settings)

type settings struct {
	servers  int
	denied   []string
	policies map[string][]any
	gate     []slots.Option
}

// Servers sets how many servers there are.
func Servers(n int) Option { return func(s *settings) { s.servers = n } }

// Denied takes rights from the servers' own account, each as "VERB RESOURCE".
func Denied(rights ...string) Option { return func(s *settings) { s.denied = rights } }

// Policies sets the admission objects of the host cluster, by resource.
func Policies(resource string, objects ...any) Option {
	return func(s *settings) { s.policies[resource] = append(s.policies[resource], objects...) }
}

// Gate changes the servers' control-plane gate.
func Gate(options ...slots.Option) Option {
	return func(s *settings) { s.gate = append(s.gate, options...) }
}

var environments atomic.Int64

// Start starts an environment, which ends with the test.
func Start(t testing.TB, options ...Option) *Env {
	t.Helper()
	s := settings{servers: 1, policies: map[string][]any{}}
	for _, option := range options {
		option(&s)
	}
	e := &Env{Prefix: fmt.Sprintf("/test-%d", environments.Add(1)), authorities: newAuthorities(t)}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{sharedEtcd(t).Endpoint}})
	if err != nil {
		t.Fatalf("connect to etcd: %v", err)
	}
	e.Etcd = client
	t.Cleanup(func() { _ = client.Close() })
	e.Kube = startKube(t, s.policies, e.authorities)
	e.Kube.Deny(s.denied...)
	for range s.servers {
		options := e.Options(t)
		options.Gate = s.gate
		e.Serve(t, options, Run)
	}
	return e
}

// Serve runs a server with the options and waits until it is ready. It is the next of the environment's servers.
func (e *Env) Serve(t testing.TB, options *apiserver.Options, run func(context.Context, *apiserver.Options) error) (server int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, options) }()
	return e.add(t, options.Recommended.SecureServing.Listener.Addr(), done, func() error {
		cancel()
		return <-done
	})
}

// add waits until a server that was started is ready, and makes it the next of the environment's.
func (e *Env) add(t testing.TB, address net.Addr, done chan error, end func() error) (server int) {
	t.Helper()
	stop := sync.OnceValue(end)
	server = len(e.URLs)
	e.stops = append(e.stops, stop)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("stop server: %v", err)
		}
	})
	e.URLs = append(e.URLs, "https://"+address.String())
	e.waitReady(t, server, done)
	e.Kube.aggregateTo(t, e.Config(server, Root))
	return server
}

// Run is a server without a command around it: it serves until the context ends.
func Run(ctx context.Context, options *apiserver.Options) error {
	config, err := options.Config(ctx)
	if err != nil {
		return err
	}
	server, err := config.Complete().New()
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

// Options are those that the environment's servers are started with.
func (e *Env) Options(t testing.TB) *apiserver.Options {
	t.Helper()
	options, err := e.place(t).options()
	if err != nil {
		t.Fatalf("make options: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	options.Recommended.SecureServing.Listener = listener
	return options
}

// place is where a server of an environment finds what it needs.
type place struct {
	CertFile, KeyFile, Prefix, Etcd, Kubeconfig string
}

func (e *Env) place(t testing.TB) place {
	t.Helper()
	p := place{Prefix: e.Prefix, Etcd: sharedEtcd(t).Endpoint, Kubeconfig: e.Kube.kubeconfig(t)}
	p.CertFile, p.KeyFile = e.authorities.serving.issue(t, "ichor-apiserver")
	return p
}

// options are all but the listener.
func (p place) options() (*apiserver.Options, error) {
	options, err := apiserver.NewOptions()
	if err != nil {
		return nil, err
	}
	// Nobody balances here, but where a test says so.
	options.Run.ShutdownDelayDuration, options.Run.ShutdownWatchTerminationGracePeriod = 0, 0
	recommended := options.Recommended
	recommended.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	recommended.SecureServing.ServerCert.CertKey.CertFile, recommended.SecureServing.ServerCert.CertKey.KeyFile = p.CertFile, p.KeyFile
	recommended.Etcd.StorageConfig.Prefix = p.Prefix
	recommended.Etcd.StorageConfig.CompactionInterval = 0
	recommended.Etcd.StorageConfig.Transport.ServerList = []string{p.Etcd}
	recommended.CoreAPI.CoreAPIKubeconfigPath = p.Kubeconfig
	recommended.Authentication.RemoteKubeConfigFile = p.Kubeconfig
	recommended.Authorization.RemoteKubeConfigFile = p.Kubeconfig
	return options, nil
}

func (e *Env) waitReady(t testing.TB, server int, done chan error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	client, err := versioned.NewForConfig(e.Config(server, Root))
	if err != nil {
		t.Fatalf("make client: %v", err)
	}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		body, err := client.RESTClient().Get().AbsPath("/readyz").Param("verbose", "").DoRaw(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("server isn't ready after %s: %v\n%s", startTimeout, err, body)
		case err := <-done:
			done <- err
			t.Fatalf("server ended: %v", err)
		case <-ticker.C:
		}
	}
}

// Stop ends a server before the test does.
func (e *Env) Stop(server int) error { return e.stops[server]() }

// Config is for a client of a server as a user.
func (e *Env) Config(server int, user string) *rest.Config {
	return &rest.Config{
		Host: e.URLs[server], BearerToken: user, QPS: -1, Timeout: time.Minute,
		TLSClientConfig: rest.TLSClientConfig{CAData: e.authorities.serving.certPEM},
	}
}

// ProxyConfig is for a client that speaks as the aggregation layer does: with the front proxy's certificate, and the
// user in headers. The certificate is another one if name isn't the front proxy's.
func (e *Env) ProxyConfig(t testing.TB, server int, name, user string, groups ...string) *rest.Config {
	t.Helper()
	return e.ProxyConfigOf(t, FrontProxyCA{e.authorities.frontProxy}, server, name, user, groups...)
}

// ProxyConfigOf is ProxyConfig with a certificate of another authority.
func (e *Env) ProxyConfigOf(t testing.TB, ca FrontProxyCA, server int, name, user string, groups ...string) *rest.Config {
	t.Helper()
	config := e.Config(server, "")
	config.BearerToken = ""
	config.CertFile, config.KeyFile = ca.authority.issue(t, name)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport.NewAuthProxyRoundTripper(user, "uid-of-"+user, groups, nil, next)
	})
	return config
}

// Client is a client of a server as a user.
func (e *Env) Client(t testing.TB, server int, user string) *versioned.Clientset {
	t.Helper()
	client, err := versioned.NewForConfig(e.Config(server, user))
	if err != nil {
		t.Fatalf("make client: %v", err)
	}
	return client
}

var shared struct {
	once sync.Once
	etcd *apiserver.EmbeddedEtcd
	dir  string
	err  error
}

// sharedEtcd is the one etcd of a test binary. Close ends it.
func sharedEtcd(t testing.TB) *apiserver.EmbeddedEtcd {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "ichor-test-etcd-"); shared.err != nil {
			return
		}
		shared.etcd, shared.err = apiserver.StartEmbeddedEtcd(context.Background(), shared.dir, func(config *embed.Config) { config.UnsafeNoFsync = true })
	})
	if shared.err != nil {
		t.Fatalf("start etcd: %v", shared.err)
	}
	return shared.etcd
}

// Close ends what the environments of a test binary shared; TestMain calls it.
func Close() {
	if shared.etcd != nil {
		shared.etcd.Close()
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir) // a test's own directory
	}
}

// RESTOptions are for a store on the shared etcd, under a prefix of its own and without a cache.
func RESTOptions(t testing.TB) generic.RESTOptionsGetter {
	t.Helper()
	return RESTOptionsUnder(t, fmt.Sprintf("/test-%d", environments.Add(1)))
}

// RESTOptionsUnder are for a store on the shared etcd under a prefix, for instance that of an environment.
func RESTOptionsUnder(t testing.TB, prefix string) generic.RESTOptionsGetter {
	t.Helper()
	options, err := apiserver.NewOptions()
	if err != nil {
		t.Fatalf("make options: %v", err)
	}
	storage := options.Recommended.Etcd.StorageConfig
	storage.Prefix = prefix
	storage.Transport.ServerList = []string{sharedEtcd(t).Endpoint}
	storage.CompactionInterval, storage.CountMetricPollPeriod, storage.DBMetricPollInterval = 0, 0, 0
	return storeOptions{storage}
}

type storeOptions struct{ config storagebackend.Config }

// GetRESTOptions returns the options of a resource.
func (o storeOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig: o.config.ForResource(resource), Decorator: generic.UndecoratedStorage, ResourcePrefix: resource.Resource,
		EnableGarbageCollection: true, DeleteCollectionWorkers: 1,
	}, nil
}
