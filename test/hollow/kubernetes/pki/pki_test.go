// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/crypto/x509"
	"k8s.io/client-go/tools/clientcmd"

	"maesh.dev/ichor/test/hollow/kubernetes/configtest"
	"maesh.dev/ichor/test/hollow/kubernetes/pki"
)

var node = pki.Identity{Hostname: "cp-1", Address: netip.MustParseAddr("127.0.20.1")}

const clusterPatch = `
cluster:
  apiServer:
    certSANs: [api.example.org, 192.0.2.7]
`

// leaf reads the certificate of a written pair.
func leaf(t *testing.T, crt, key string) *stdx509.Certificate {
	t.Helper()

	pair, err := tls.LoadX509KeyPair(crt, key)
	if err != nil {
		t.Fatalf("load %s: %v", filepath.Base(crt), err)
	}

	return pair.Leaf
}

func verify(t *testing.T, certificate *stdx509.Certificate, caFile, name string, use stdx509.ExtKeyUsage) {
	t.Helper()

	bundle, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}

	pool, err := pki.Pool(bundle)
	if err != nil {
		t.Fatal(err)
	}

	options := stdx509.VerifyOptions{Roots: pool, DNSName: name, KeyUsages: []stdx509.ExtKeyUsage{use}}
	if _, err = certificate.Verify(options); err != nil {
		t.Errorf("verify %s for %q: %v", certificate.Subject, name, err)
	}
}

func TestEveryCertificateOfAControlPlaneVerifies(t *testing.T) {
	t.Parallel()

	cfg := configtest.New(t, "https://cluster.example.org:6443").ControlPlane(t, clusterPatch)
	folder := pki.Folder(filepath.Join(t.TempDir(), "run"))

	etcd, err := pki.WriteEtcd(folder+"/etcd", cfg.Cluster().Etcd().CA(), node)
	if err != nil {
		t.Fatal(err)
	}

	kube, err := pki.WriteKubernetes(folder+"/kubernetes", cfg.Cluster(), node, "https://127.0.20.1:6443")
	if err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		what, crt, key, ca string
		names              []string
		use                stdx509.ExtKeyUsage
		user, group        string
	}{
		{
			what: "etcd server", crt: etcd.ServerCert, key: etcd.ServerKey, ca: etcd.CA,
			names: []string{"127.0.20.1", "cp-1", "localhost"}, use: stdx509.ExtKeyUsageServerAuth, user: "cp-1",
		},
		{
			what: "etcd peer", crt: etcd.PeerCert, key: etcd.PeerKey, ca: etcd.CA,
			names: []string{"127.0.20.1"}, use: stdx509.ExtKeyUsageClientAuth, user: "cp-1",
		},
		{
			what: "kube-apiserver", crt: kube.ServerCert, key: kube.ServerKey, ca: kube.CA,
			names: []string{"cluster.example.org", "api.example.org", "192.0.2.7", "127.0.20.1", "kubernetes.default.svc", "10.96.0.1"},
			use:   stdx509.ExtKeyUsageServerAuth, user: "kube-apiserver", group: "kube-master",
		},
		{
			what: "kubelet client", crt: kube.KubeletCert, key: kube.KubeletKey, ca: kube.CA, names: []string{""},
			use: stdx509.ExtKeyUsageClientAuth, user: "apiserver-kubelet-client", group: "system:masters",
		},
		{
			what: "front proxy", crt: kube.FrontProxyCert, key: kube.FrontProxyKey, ca: kube.AggregatorCA, names: []string{""},
			use: stdx509.ExtKeyUsageClientAuth, user: "front-proxy-client",
		},
		{
			what: "etcd client of the kube-apiserver", crt: kube.EtcdCert, key: kube.EtcdKey, ca: kube.EtcdCA, names: []string{""},
			use: stdx509.ExtKeyUsageClientAuth, user: "kube-apiserver",
		},
		{
			what: "controller manager's health endpoint", crt: kube.ManagerCert, key: kube.ManagerKey, ca: kube.CA,
			names: []string{"127.0.20.1"}, use: stdx509.ExtKeyUsageServerAuth, user: "kube-controller-manager",
		},
	} {
		certificate := leaf(t, test.crt, test.key)

		for _, name := range test.names {
			verify(t, certificate, test.ca, name, test.use)
		}

		got := []string{certificate.Subject.CommonName, strings.Join(certificate.Subject.Organization, ",")}
		if diff := cmp.Diff([]string{test.user, test.group}, got); diff != "" {
			t.Errorf("subject of %s (-want +got):\n%s", test.what, diff)
		}
	}
}

func TestKeysAreForTheOwnerOnly(t *testing.T) {
	t.Parallel()

	cfg := configtest.New(t, "https://127.0.20.1:6443").ControlPlane(t)
	folder := pki.Folder(filepath.Join(t.TempDir(), "run"))

	if _, err := pki.WriteKubernetes(folder, cfg.Cluster(), node, "https://127.0.20.1:6443"); err != nil {
		t.Fatal(err)
	}

	err := filepath.Walk(string(folder), func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v, want none for group and others", path, info.Mode())
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAdminKubeconfigPointsToTheClusterEndpoint(t *testing.T) {
	t.Parallel()

	cfg := configtest.New(t, "https://cluster.example.org:6443").ControlPlane(t)

	text, err := pki.AdminKubeconfig(cfg.Cluster())
	if err != nil {
		t.Fatal(err)
	}

	kubeconfig, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}

	certificate, err := tls.X509KeyPair(kubeconfig.CertData, kubeconfig.KeyData)
	if err != nil {
		t.Fatal(err)
	}

	got := []string{kubeconfig.Host, certificate.Leaf.Subject.CommonName, certificate.Leaf.Subject.Organization[0]}
	if diff := cmp.Diff([]string{"https://cluster.example.org:6443", "admin", "system:masters"}, got); diff != "" {
		t.Errorf("kubeconfig (-want +got):\n%s", diff)
	}
}

func TestAWorkersConfigurationIssuesNothing(t *testing.T) {
	t.Parallel()

	cfg := configtest.New(t, "https://127.0.20.1:6443").Worker(t)

	_, err := pki.AdminKubeconfig(cfg.Cluster())
	if err == nil || !strings.Contains(err.Error(), "only control planes can issue certificates") {
		t.Errorf("got %v, want that the CA has no key", err)
	}
}

func TestAcceptedCAsAreJoinedOnce(t *testing.T) {
	t.Parallel()

	cluster := configtest.New(t, "https://127.0.20.1:6443").ControlPlane(t).Cluster()
	other := configtest.New(t, "https://127.0.20.1:6443").ControlPlane(t).Cluster()

	issuing := &x509.PEMEncodedCertificate{Crt: cluster.IssuingCA().Crt}
	retired := &x509.PEMEncodedCertificate{Crt: other.IssuingCA().Crt}

	for _, test := range []struct {
		name     string
		accepted []*x509.PEMEncodedCertificate
		want     int
	}{
		{"the issuing CA alone", nil, 1},
		{"the issuing CA is accepted, too", []*x509.PEMEncodedCertificate{issuing}, 1},
		{"an old CA beside it", []*x509.PEMEncodedCertificate{retired, issuing, retired}, 2},
	} {
		bundle := pki.Bundle(test.accepted, cluster.IssuingCA())
		if got := strings.Count(string(bundle), "BEGIN CERTIFICATE"); got != test.want {
			t.Errorf("%s: got %d certificates, want %d", test.name, got, test.want)
		}
	}
}
