// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"maesh.dev/ichor/test/bench/api/rival"
)

// frontProxy is the name in the kube-apiserver's certificate for aggregated servers.
const frontProxy = "front-proxy-client"

// etcdAnswersWithin bounds one look whether etcd is ready.
const etcdAnswersWithin = 10 * time.Second

// world is an etcd and a kube-apiserver, with Ichor's side, the rival's, or both.
type world struct {
	dir, binaries                string
	client, proxy, serving       *authority
	kubeURL                      string
	etcd, kube, ichor, webhook   *program
	programs                     []*program
	store                        *clientv3.Client
	admin                        *rest.Config
	adminPair, operator, machine pair
	transports                   []*http.Transport
	sides                        []*side
}

// The users of a run.
const (
	// operatorUser approves and reads.
	operatorUser = "operator"
	// controllerUser enters machines and writes their status.
	controllerUser = "controller"
)

// startWorld starts the servers of the sides.
func startWorld(ctx context.Context, s settings, name string, sides ...*side) (w *world, err error) {
	w = &world{dir: filepath.Join(s.state, name), binaries: s.binaries, sides: sides}
	defer func() {
		if err != nil {
			w.stop(ctx)
		}
	}()
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return nil, fmt.Errorf("folder of the servers: %w", err)
	}
	for _, step := range []func(context.Context) error{w.makeAuthorities, w.startEtcd, w.startKube} {
		if err := step(ctx); err != nil {
			return w, err
		}
	}
	for _, side := range sides {
		if err := side.install(ctx, w); err != nil {
			return w, err
		}
	}
	return w, nil
}

// stop ends everything in the reverse order.
func (w *world) stop(ctx context.Context) {
	for _, transport := range w.transports {
		transport.CloseIdleConnections()
	}
	if w.store != nil {
		_ = w.store.Close() // its server ends next
	}
	for i := len(w.programs) - 1; i >= 0; i-- {
		w.programs[i].stop(ctx)
	}
}

func (w *world) start(name, path string, args ...string) *program {
	p := startProgram(w.dir, name, path, args...)
	w.programs = append(w.programs, p)
	return p
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) makeAuthorities(context.Context) (err error) {
	for name, into := range map[string]**authority{"client-ca": &w.client, "front-proxy-ca": &w.proxy, "serving-ca": &w.serving} {
		if *into, err = newAuthority(name); err != nil {
			return err
		}
		if err := w.write(name+".crt", (*into).pem); err != nil {
			return err
		}
	}
	for into, name := range map[*pair][]string{
		&w.adminPair: {"admin", "system:masters"}, &w.operator: {operatorUser, "people"}, &w.machine: {controllerUser, "system:serviceaccounts"},
	} {
		if *into, err = w.client.issue(name[0], name[1:]...); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) write(name string, data []byte) error {
	if err := os.WriteFile(w.path(name), data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func (w *world) writePair(name string, p pair) error {
	if err := w.write(name+".crt", p.cert); err != nil {
		return err
	}
	return w.write(name+".key", p.key)
}

// itself starts this executable as one of its stages.
func (w *world) itself(name string, args ...string) (*program, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return w.start(name, self, append([]string{name}, args...)...), nil
}

func (w *world) startEtcd(ctx context.Context) (err error) {
	if w.etcd, err = w.itself("etcd", w.path("etcd")); err != nil {
		return err
	}
	if w.store, err = clientv3.New(clientv3.Config{Endpoints: []string{w.etcdURL()}, Context: ctx, Logger: zap.NewNop()}); err != nil {
		return fmt.Errorf("client of etcd: %w", err)
	}
	return w.etcd.await(ctx, func(ctx context.Context) error {
		if _, err := os.Stat(w.path("etcd/client.sock")); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, etcdAnswersWithin)
		defer cancel()
		_, err := w.store.Get(ctx, "ready")
		return err
	})
}

func (w *world) etcdURL() string { return "unix://" + w.path("etcd/client.sock") }

func (w *world) startKube(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	w.kubeURL = "https://127.0.0.1:" + port
	if err := w.writeKubeFiles(); err != nil {
		return err
	}
	w.admin = &rest.Config{
		Host: w.kubeURL, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: w.serving.pem, CertData: w.adminPair.cert, KeyData: w.adminPair.key},
	}
	w.kube = w.start("kube-apiserver", filepath.Join(w.binaries, "kube-apiserver"),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+port,
		"--etcd-servers="+w.etcdURL(), "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/12",
		"--authorization-mode=RBAC", "--anonymous-auth=false", "--client-ca-file="+w.path("client-ca.crt"),
		"--tls-cert-file="+w.path("kube.crt"), "--tls-private-key-file="+w.path("kube.key"),
		"--requestheader-client-ca-file="+w.path("front-proxy-ca.crt"), "--requestheader-allowed-names="+frontProxy,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+w.path("proxy.crt"), "--proxy-client-key-file="+w.path("proxy.key"),
		"--service-account-issuer=https://bench.example.dev", "--service-account-key-file="+w.path("accounts.key"),
		"--service-account-signing-key-file="+w.path("accounts.key"))
	admin, err := w.callers(w.adminPair, 1)
	if err != nil {
		return err
	}
	return w.kube.await(ctx, func(ctx context.Context) error {
		_, err := admin[0].call(ctx, http.MethodGet, "/readyz", nil)
		return err
	})
}

func (w *world) writeKubeFiles() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key of ServiceAccounts: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key of ServiceAccounts: %w", err)
	}
	if err := w.write("accounts.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})); err != nil {
		return err
	}
	for name, from := range map[string]*authority{"kube": w.serving, "webhook": w.serving, servingName: w.serving} {
		p, err := from.issue(name)
		if err != nil {
			return err
		}
		if err := w.writePair(name, p); err != nil {
			return err
		}
	}
	proxy, err := w.proxy.issue(frontProxy, "front-proxies")
	if err != nil {
		return err
	}
	return w.writePair("proxy", proxy)
}

// kubeconfig writes the file of an account, with a client certificate.
func (w *world) kubeconfig(account string, groups ...string) (string, error) {
	p, err := w.client.issue(account, groups...)
	if err != nil {
		return "", err
	}
	path := w.path("kubeconfig-" + filepath.Base(account))
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"bench": {Server: w.kubeURL, CertificateAuthorityData: w.serving.pem}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{account: {ClientCertificateData: p.cert, ClientKeyData: p.key}},
		Contexts:       map[string]*clientcmdapi.Context{"bench": {Cluster: "bench", AuthInfo: account}},
		CurrentContext: "bench",
	}
	if err := clientcmd.WriteToFile(config, path); err != nil {
		return "", fmt.Errorf("kubeconfig of %s: %w", account, err)
	}
	return path, nil
}

// freePort is a port that nobody listens on.
func freePort() (string, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close() //nolint:errcheck // nobody connected to it
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port), nil
}

// webhookUser is the account of the rival's webhook.
const webhookUser = rival.WebhookUser
