// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config"

	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
)

// apiServer is a server with a certificate of the bundle's Kubernetes authority.
func apiServer(t *testing.T, bundle *secretsbundle.Bundle, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	authority, err := tls.X509KeyPair(bundle.Talos().Certs.K8s.Crt, bundle.Talos().Certs.K8s.Key)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(7), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, authority.Leaf, key.Public(), authority.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(bundle.Talos().Certs.K8s.Crt)
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func TestTheKubernetesAPIIsAskedWhetherItIsReady(t *testing.T) {
	t.Parallel()
	bundle, err := secretsbundle.Generate(config.TalosVersion1_6, time.Now()) // its keys are quickly made
	if err != nil {
		t.Fatal(err)
	}
	other, err := secretsbundle.Generate(config.TalosVersion1_6, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	client, err := bundle.KubernetesClient(time.Now(), clientName, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		server *httptest.Server
		want   API
		says   string
	}{
		"ready": {apiServer(t, bundle, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" || r.TLS.PeerCertificates[0].Subject.CommonName != clientName {
				w.WriteHeader(http.StatusForbidden)
			}
		}), API{Answers: true, Ready: true}, ""},
		"without etcd": {apiServer(t, bundle, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte("[+]ping ok\n[-]etcd failed: reason withheld\n[-]\x1b[31m failed\n[-]poststarthook/x failed: reason withheld\nreadyz check failed\n"))
		}), API{Answers: true}, "HTTP status 500, failed: etcd, poststarthook/x"},
		"a redirect isn't followed": {apiServer(t, bundle, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}), API{Answers: true}, "HTTP status 302"},
		"of another cluster": {apiServer(t, other, func(http.ResponseWriter, *http.Request) {}), API{}, "unknown authority"},
	} {
		apis, err := AskKubernetes(t.Context(), nil, tc.server.URL, client)
		if err != nil || len(apis) != 1 {
			t.Fatalf("%s: %v, %v", name, apis, err)
		}
		if !strings.Contains(apis[0].Message, tc.says) || strings.Contains(apis[0].Message, "\x1b") {
			t.Errorf("%s: message %q, want %q", name, apis[0].Message, tc.says)
		}
		tc.want.URL, tc.want.Message = tc.server.URL, apis[0].Message
		if diff := cmp.Diff(tc.want, apis[0]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWhereTheKubernetesAPIMayBe(t *testing.T) {
	t.Parallel()
	views := seen(follows(1, 3, 1), follows(2, 3, 1), silent)
	views[1].Survey.Peers = []talos.Peer{{NodeID: "node-2", Hostname: "cp-2", ControlPlane: true, APIPort: 7443}}
	views[0].Survey.Peers = nil
	got := apiURLs(views, "https://api.example:443")
	if diff := cmp.Diff([]string{"https://10.0.0.1:6443", "https://10.0.0.2:7443", "https://api.example:443"}, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}
