// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/test/chaos/wire"
	"maesh.dev/ichor/test/localstack/balancer"
	"maesh.dev/ichor/test/localstack/install"
	"maesh.dev/ichor/test/localstack/loopback"
	"maesh.dev/ichor/test/localstack/people"
)

// Members and Replicas are how many members etcd has, and how many ichor-apiservers there are.
const (
	Members  = 3
	Replicas = 3
)

const (
	// startFor bounds the start of a world on a busy computer.
	startFor = 3 * time.Minute
	look     = 200 * time.Millisecond
)

// World is a running world.
type World struct {
	// Etcd, Kube and Ichor are the parts.
	Etcd  [Members]*Part
	Kube  *Part
	Ichor [Replicas]*Part
	// Peer are the wires over which the other members reach one.
	Peer [Members]*wire.Wire
	// KubeEtcd and IchorEtcd are those to etcd's members, of the kube-apiserver and of each ichor-apiserver.
	KubeEtcd  [Members]*wire.Wire
	IchorEtcd [Replicas][Members]*wire.Wire
	// IchorKube are those of the ichor-apiservers to the kube-apiserver, KubeIchor those to each ichor-apiserver.
	IchorKube, KubeIchor [Replicas]*wire.Wire
	// Front is the wire of the clients to the kube-apiserver.
	Front *wire.Wire

	dir, bin string
	logger   *slog.Logger
	logFile  *os.File
	loopback *loopback.Range
	// balancers are before the kube-apiserver and before the ichor-apiservers.
	balancers []*balancer.Balancer

	etcdCA, kubeCA, proxyCA, servingCA           *authority
	etcdCert, etcdKey, servingCert, servingKey   string
	masterCert, masterKey, clientCert, clientKey string
}

// Start brings a world up, with its data and logs in the folder. ctx bounds the start only.
func Start(ctx context.Context, dir, bin string) (*World, error) {
	ctx, cancel := context.WithTimeout(ctx, startFor)
	defer cancel()
	w := &World{dir: dir, bin: bin}
	for _, step := range []func(context.Context) error{w.prepare, w.lay, w.startEtcd, w.startKube, w.startIchor} {
		if err := step(ctx); err != nil {
			w.Stop()
			return nil, err
		}
	}
	return w, nil
}

// prepare claims addresses and makes keys.
func (w *World) prepare(context.Context) (err error) {
	if w.logFile, err = os.OpenFile(filepath.Join(w.dir, "world.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return fmt.Errorf("log of the world: %w", err)
	}
	w.logger = slog.New(slog.NewTextHandler(w.logFile, nil))
	if w.loopback, err = loopback.Claim(); err != nil {
		return err
	}
	addresses := []net.IP{net.IPv4(127, 0, 0, 1)} // wires
	for n := range Members + 1 + Replicas {
		addresses = append(addresses, w.addressOf(n).AsSlice())
	}
	for name, ca := range map[string]**authority{"etcd": &w.etcdCA, "kubernetes": &w.kubeCA, "front-proxy": &w.proxyCA, "serving": &w.servingCA} {
		if *ca, err = newAuthority(w.dir, name, addresses); err != nil {
			return err
		}
	}
	for _, pair := range []struct {
		ca         *authority
		name       string
		groups     []string
		cert, keys *string
	}{
		{w.etcdCA, "client", nil, &w.etcdCert, &w.etcdKey},
		{w.servingCA, servingName, nil, &w.servingCert, &w.servingKey},
		{w.kubeCA, "master", []string{"system:masters"}, &w.masterCert, &w.masterKey},
		{w.kubeCA, Person, nil, &w.clientCert, &w.clientKey},
	} {
		if *pair.cert, *pair.keys, err = pair.ca.issue(pair.name, pair.groups...); err != nil {
			return err
		}
	}
	return nil
}

// addressOf is the address of the nth part: members, then the kube-apiserver, then the ichor-apiservers.
func (w *World) addressOf(n int) netip.Addr { return w.loopback.Machine(n) }

// lay lays the wires.
func (w *World) lay(context.Context) error {
	var faults []error
	to := func(address string) *wire.Wire {
		laid, err := wire.Start(address)
		faults = append(faults, err)
		return laid
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the balancer: %w", err)
	}
	// As everywhere, only a kube-apiserver that is ready gets connections: until it knows its roles, it refuses everybody.
	w.balancers = append(w.balancers, balancer.Start(listener, balancer.Config{
		Name: "kube-apiserver", Backends: []string{at(w.addressOf(Members), kubePort)}, Check: w.isKubeReady, Logger: w.logger, Interval: 500 * time.Millisecond,
	}))
	kube := listener.Addr().String()
	for m := range Members {
		w.Peer[m] = to(at(w.addressOf(m), etcdPeerPort))
		w.KubeEtcd[m] = to(at(w.addressOf(m), etcdClientPort))
	}
	for n := range Replicas {
		for m := range Members {
			w.IchorEtcd[n][m] = to(at(w.addressOf(m), etcdClientPort))
		}
		w.IchorKube[n] = to(kube)
		w.KubeIchor[n] = to(at(w.addressOf(Members+1+n), ichorPort))
	}
	w.Front = to(kube)
	return errors.Join(faults...)
}

func addresses(wires []*wire.Wire) []string {
	var out []string
	for _, each := range wires {
		out = append(out, each.Addr())
	}
	return out
}

func (w *World) startEtcd(ctx context.Context) error {
	for n := range Members {
		args, err := w.etcdArgs(n)
		if err != nil {
			return err
		}
		w.Etcd[n] = startPart(w.dir, etcdName(n), filepath.Join(w.bin, "hollow"), w.logger, args...)
	}
	client, err := w.EtcdClient()
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // nothing was written
	return until(ctx, "etcd answers", func(ctx context.Context) error {
		_, err := client.Get(ctx, "health")
		return err
	})
}

func (w *World) startKube(ctx context.Context) error {
	args, err := w.kubeArgs()
	if err != nil {
		return err
	}
	w.Kube = startPart(w.dir, "kube-apiserver", filepath.Join(w.bin, "kube-apiserver"), w.logger, args...)
	master := w.config(w.Front.Addr(), w.kubeCA, w.masterCert, w.masterKey)
	if err := until(ctx, "the kube-apiserver is ready", unlessBroken(w.Kube, ready(master))); err != nil {
		return err
	}
	if err := install.Accounts(ctx, master); err != nil {
		return err
	}
	return install.Bind(ctx, master, Person, "cluster-admin")
}

// startIchor starts the ichor-apiservers and registers the API.
func (w *World) startIchor(ctx context.Context) error {
	master := w.config(w.Front.Addr(), w.kubeCA, w.masterCert, w.masterKey)
	client, err := kubernetes.NewForConfig(master)
	if err != nil {
		return fmt.Errorf("client for tokens: %w", err)
	}
	token, _, err := people.Token(ctx, client, artifacts.Namespace, artifacts.APIServerName)
	if err != nil {
		return err
	}
	tokenFile := filepath.Join(w.dir, "token")
	if err := os.WriteFile(tokenFile, []byte(token), 0o600); err != nil {
		return err
	}
	for n := range Replicas {
		cluster := people.Cluster{Name: "chaos", Server: "https://" + w.IchorKube[n].Addr(), CA: w.kubeCA.pem}
		kubeconfig, err := cluster.Account(artifacts.APIServerName, tokenFile)
		if err != nil {
			return err
		}
		if err := os.WriteFile(w.kubeconfigOf(n), kubeconfig, 0o600); err != nil {
			return err
		}
		w.Ichor[n] = startPart(w.dir, IchorName(n), filepath.Join(w.bin, "ichor-apiserver"), w.logger, w.ichorArgs(n)...)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the balancer: %w", err)
	}
	w.balancers = append(w.balancers, balancer.Start(listener, balancer.Config{Name: "ichor-apiserver", Backends: addresses(w.KubeIchor[:]), Check: w.isReady, Logger: w.logger}))
	for n := range Replicas {
		if err := until(ctx, IchorName(n)+" is ready", func(ctx context.Context) error { return w.isReady(ctx, w.KubeIchor[n].Addr()) }); err != nil {
			return err
		}
	}
	if err := install.API(ctx, master, listener.Addr().(*net.TCPAddr).Port); err != nil {
		return err
	}
	if err := w.vouch(ctx, master); err != nil {
		return err
	}
	return install.WaitAvailable(ctx, master)
}

// vouch writes whom the kube-apiserver is to trust, which the controller does where there is one.
func (w *World) vouch(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client of the APIService: %w", err)
	}
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"caBundle": w.servingCA.pem}})
	if err != nil {
		return err
	}
	services := client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	_, err = services.Patch(ctx, artifacts.APIServiceName, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

// IchorName is the name of the nth ichor-apiserver.
func IchorName(n int) string { return "ichor-apiserver-" + strconv.Itoa(n+1) }

func (w *World) kubeconfigOf(n int) string {
	return filepath.Join(w.dir, IchorName(n)+".kubeconfig")
}

// EtcdClient reaches etcd's members, each of them itself and not over a wire.
func (w *World) EtcdClient() (*clientv3.Client, error) {
	certificate, err := tls.LoadX509KeyPair(w.etcdCert, w.etcdKey)
	if err != nil {
		return nil, fmt.Errorf("client of etcd: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(w.etcdCA.parsed)
	var endpoints []string
	for n := range Members {
		endpoints = append(endpoints, "https://"+at(w.addressOf(n), etcdClientPort))
	}
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop(), MaxCallRecvMsgSize: 64 << 20,
		TLS: &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: roots, MinVersion: tls.VersionTLS12},
	})
}

// Stop ends everything.
func (w *World) Stop() {
	var group sync.WaitGroup
	for _, part := range w.parts() {
		group.Go(part.stop)
	}
	group.Wait()
	for _, each := range w.wires() {
		group.Go(each.Close)
	}
	for _, each := range w.balancers {
		group.Go(each.Close)
	}
	group.Wait()
	if w.loopback != nil {
		_ = w.loopback.Close() // the range is free with the process at the latest
	}
	if w.logFile != nil {
		_ = w.logFile.Close() // a log
	}
}

func (w *World) parts() []*Part {
	var out []*Part
	for _, part := range append(append(w.Ichor[:], w.Kube), w.Etcd[:]...) {
		if part != nil {
			out = append(out, part)
		}
	}
	return out
}

func (w *World) wires() []*wire.Wire {
	all := append([]*wire.Wire{w.Front}, w.Peer[:]...)
	all = append(append(append(all, w.KubeEtcd[:]...), w.IchorKube[:]...), w.KubeIchor[:]...)
	for n := range Replicas {
		all = append(all, w.IchorEtcd[n][:]...)
	}
	var out []*wire.Wire
	for _, each := range all {
		if each != nil {
			out = append(out, each)
		}
	}
	return out
}

// Mend undoes every fault: what pauses goes on, and all wires are whole.
func (w *World) Mend() error {
	var faults []error
	for _, part := range w.parts() {
		faults = append(faults, part.Resume())
	}
	for _, each := range w.wires() {
		each.Set(wire.Whole)
	}
	return errors.Join(faults...)
}

// until asks again and again until something is so.
func until(ctx context.Context, what string, so func(ctx context.Context) error) error {
	last := errors.New("nobody asked yet")
	err := wait.PollUntilContextCancel(ctx, look, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		last = so(ctx)
		if errors.Is(last, errBroken) {
			return false, last
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w: %w", what, err, last)
	}
	return nil
}

// unlessBroken ends the wait for a part that ends again and again.
func unlessBroken(part *Part, so func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if part.Starts() > 3 {
			return fmt.Errorf("%w: %s ends again and again; its log says why", errBroken, part.Name)
		}
		return so(ctx)
	}
}

var errBroken = errors.New("broken")

func ready(config *rest.Config) func(context.Context) error {
	return func(ctx context.Context) error {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		_, err = client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	}
}
