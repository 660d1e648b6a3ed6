// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"crypto/rand"
	stdx509 "crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// sign issues what a request asks for.
func (a authority) sign(t *testing.T, request []byte) []byte {
	t.Helper()

	block, _ := pem.Decode(request)

	csr, err := stdx509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}

	template := &stdx509.Certificate{
		SerialNumber: big.NewInt(3), Subject: csr.Subject, DNSNames: csr.DNSNames, IPAddresses: csr.IPAddresses,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth},
	}

	der, err := stdx509.CreateCertificate(rand.Reader, template, a.cert, csr.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}

	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestAKubeletAsksForItsServingCertificateOnlyIfToldAndOnce(t *testing.T) {
	t.Parallel()

	client := fake.NewClientset()
	requests := client.CertificatesV1().CertificateSigningRequests()
	ca := newAuthority(t)
	options := Options{NodeName: "n", Address: netip.MustParseAddr("10.0.0.1"), Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}

	look := func(k *Kubelet) []certificatesv1.CertificateSigningRequest {
		t.Helper()

		if err := k.rotateServing(t.Context()); err != nil {
			t.Fatal(err)
		}

		list, err := requests.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}

		return list.Items
	}

	if got := look(&Kubelet{options: options, client: client}); len(got) != 0 {
		t.Fatalf("it asks, and nobody told it to: %+v", got)
	}

	options.ServingCertificate = true
	k := &Kubelet{options: options, client: client}

	asked := look(k)
	if len(asked) != 1 {
		t.Fatalf("it made %d requests, want 1", len(asked))
	}

	want := certificatesv1.CertificateSigningRequestSpec{
		SignerName: certificatesv1.KubeletServingSignerName,
		Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		Request:    asked[0].Spec.Request,
	}
	if diff := cmp.Diff(want, asked[0].Spec); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}

	asked[0].Status.Certificate = ca.sign(t, asked[0].Spec.Request)
	if _, err := requests.UpdateStatus(t.Context(), &asked[0], metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	look(k)

	if k.serving.current == nil || k.serving.current.VerifyHostname("10.0.0.1") != nil || k.serving.current.VerifyHostname("n") != nil {
		t.Errorf("its certificate is %+v, want one for its name and address", k.serving.current)
	}

	if got := look(&Kubelet{options: options, client: client}); len(got) != 1 {
		t.Errorf("after a reboot there are %d requests, want the first one only", len(got))
	}

	moved := &Kubelet{options: options, client: fake.NewClientset()} // the fake gives no second name
	moved.options.Address = netip.MustParseAddr("10.0.0.2")
	look(moved)

	if moved.serving.rotation == nil {
		t.Error("at another address it keeps the certificate of the old one")
	}
}

func TestADeniedServingCertificateIsNotAskedForAtOnce(t *testing.T) {
	t.Parallel()

	client := fake.NewClientset()
	requests := client.CertificatesV1().CertificateSigningRequests()
	k := &Kubelet{client: client, options: Options{
		NodeName: "n", Address: netip.MustParseAddr("10.0.0.1"), Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler), ServingCertificate: true,
	}}

	if err := k.rotateServing(t.Context()); err != nil {
		t.Fatal(err)
	}

	request, err := requests.Get(t.Context(), k.serving.rotation.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Reason: "No"}}
	if _, err = requests.UpdateStatus(t.Context(), request, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	if err = k.rotateServing(t.Context()); err == nil {
		t.Error("it says nothing of the denial")
	}

	if err = k.rotateServing(t.Context()); err != nil || k.serving.rotation != nil {
		t.Errorf("it asks again at once: %v", err)
	}
}
