// SPDX-License-Identifier: Apache-2.0

package servingcertificate

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// connect makes a connection to a peer and says whether it stood.
func connect(t *testing.T, peer *Peer, roots *x509.CertPool, certificates ...tls.Certificate) error {
	t.Helper()
	near, far := net.Pipe()
	server, client := tls.Server(far, peer.ServerConfig()), tls.Client(near, &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: ControllerServerName, Certificates: certificates,
	})
	served := make(chan error, 1)
	go func() {
		err := server.HandshakeContext(t.Context())
		if err == nil {
			_, err = server.Write([]byte("x"))
		}
		_ = far.Close()
		served <- err
	}()
	err := client.HandshakeContext(t.Context())
	if err == nil {
		_, err = client.Read(make([]byte, 1)) // in TLS 1.3 the refusal comes after the client's handshake
	}
	_ = near.Close()
	if refused := <-served; err == nil {
		err = refused
	}
	return err
}

func TestOnlyTheAPIServerReachesItsPeer(t *testing.T) {
	t.Parallel()
	now := time.Now()
	own, other := mustAuthority(t, now), mustAuthority(t, now)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: AuthoritySecretName}}
	if err := (authorities{current: own, signedUntil: now.Add(time.Hour)}).store(secret); err != nil {
		t.Fatal(err)
	}
	peer := &Peer{Secrets: fake.NewClientset(secret).CoreV1(), Clock: clocktesting.NewFakePassiveClock(now)}
	roots := x509.NewCertPool()
	roots.AddCert(own.certificate)
	wrong := x509.NewCertPool()
	wrong.AddCert(other.certificate)
	for name, tc := range map[string]struct {
		roots        *x509.CertPool
		certificates []tls.Certificate
		let          bool
	}{
		"the API server":                               {roots, []tls.Certificate{mustLeaf(t, own, now, apiServerName)}, true},
		"nobody":                                       {roots, nil, false},
		"the API server of another authority":          {roots, []tls.Certificate{mustLeaf(t, other, now, apiServerName)}, false},
		"another name of the same authority":           {roots, []tls.Certificate{mustLeaf(t, own, now, ControllerServerName)}, false},
		"the API server, that knows another authority": {wrong, []tls.Certificate{mustLeaf(t, own, now, apiServerName)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := connect(t, peer, tc.roots, tc.certificates...); (err == nil) != tc.let {
				t.Errorf("want it let in: %t, got %v", tc.let, err)
			}
		})
	}
}

func TestAPeersCertificateIsRenewedWithItsAuthority(t *testing.T) {
	t.Parallel()
	now := time.Now()
	first, second := mustAuthority(t, now), mustAuthority(t, now.Add(time.Second))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: AuthoritySecretName}}
	if err := (authorities{current: first, signedUntil: now.Add(48 * time.Hour)}).store(secret); err != nil {
		t.Fatal(err)
	}
	client, clock := fake.NewClientset(secret), clocktesting.NewFakePassiveClock(now)
	peer := &Peer{Secrets: client.CoreV1(), Clock: clock}
	leaf := func() *x509.Certificate {
		t.Helper()
		settings, err := peer.current(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return settings.Certificates[0].Leaf
	}
	a := leaf()
	clock.SetTime(now.Add(2 * peerRefresh))
	if b := leaf(); !b.Equal(a) {
		t.Error("renewed without need")
	}
	clock.SetTime(now.Add(peerLifetime/2 + time.Minute))
	b := leaf()
	if b.Equal(a) || !b.NotAfter.After(a.NotAfter) {
		t.Error("not renewed at half of its life")
	}
	if err := (authorities{current: second, retired: []*x509.Certificate{first.certificate}, signedUntil: now.Add(96 * time.Hour)}).store(secret); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Secrets(secret.Namespace).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	clock.SetTime(clock.Now().Add(2 * peerRefresh))
	if c := leaf(); !second.signed(c) {
		t.Error("the certificate isn't the new authority's")
	}
}

func mustAuthority(t *testing.T, now time.Time) authority {
	t.Helper()
	made, err := newAuthority(now, 365*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func mustLeaf(t *testing.T, by authority, now time.Time, name string) tls.Certificate {
	t.Helper()
	issued, err := by.issue([]string{name}, now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(issued.chain, issued.key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
