// SPDX-License-Identifier: Apache-2.0

package people_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"maesh.dev/ichor/test/localstack/people"
	"maesh.dev/ichor/test/localstack/serving"
)

var cluster = people.Cluster{Name: "local", Server: "https://127.0.16.2:6443", CA: []byte("PEM of an authority")}

// signer is a cluster whose controller signs what was approved.
func signer(t *testing.T) *fake.Clientset {
	t.Helper()
	client := fake.NewClientset()
	client.PrependReactor("update", "certificatesigningrequests", func(action clienttesting.Action) (bool, runtime.Object, error) {
		csr := action.(clienttesting.UpdateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
		block, _ := pem.Decode(csr.Spec.Request)
		request, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			t.Error(err)
			return true, nil, err
		}
		approved := len(csr.Status.Conditions) == 1 && csr.Status.Conditions[0].Type == certificatesv1.CertificateApproved
		if action.GetSubresource() != "approval" || !approved || csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
			t.Errorf("approved %v through %q, signer %s", approved, action.GetSubresource(), csr.Spec.SignerName)
		}
		csr.Status.Certificate = []byte("certificate of " + request.Subject.String())
		return false, csr, nil
	})
	return client
}

func TestAPersonGetsACertificateThatKubernetesSigned(t *testing.T) {
	t.Parallel()
	client := signer(t)
	data, err := people.Person(t.Context(), client, cluster, "operator")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != cluster.Server || string(config.CertData) != "certificate of CN=operator" || !strings.Contains(string(config.KeyData), "PRIVATE KEY") {
		t.Errorf("kubeconfig for %s with certificate %q", config.Host, config.CertData)
	}
	left, err := client.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 0 {
		t.Errorf("requests left behind: %v (%v)", left.Items, err)
	}
}

func TestATokenIsRenewedAtHalfItsLife(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		request := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest)
		life := time.Duration(*request.Spec.ExpirationSeconds) * time.Second
		request.Status = authenticationv1.TokenRequestStatus{Token: "secret", ExpirationTimestamp: metav1.NewTime(time.Now().Add(life))}
		return true, request, nil
	})
	token, renew, err := people.Token(t.Context(), client, "ichor-system", "ichor-controller")
	if err != nil {
		t.Fatal(err)
	}
	if half := people.TokenLife / 2; token != "secret" || renew > half || renew < half-time.Minute {
		t.Errorf("token %q, renewed after %s, want about %s", token, renew, half)
	}
}

func TestATokenThatNobodyGivesIsAnError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := people.Token(ctx, fake.NewClientset(), "ichor-system", "nobody"); err == nil || !strings.Contains(err.Error(), "ichor-system/nobody") {
		t.Errorf("error %v", err)
	}
}

func TestAKubeconfigIsKeptWhileItIsGood(t *testing.T) {
	t.Parallel()
	authority, err := serving.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue([]string{"viewer"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := cluster.Kubeconfig("viewer", &clientcmdapi.AuthInfo{ClientCertificateData: pair.Certificate, ClientKeyData: pair.Key})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	other := cluster
	other.CA = []byte("another authority")
	const day = 24 * time.Hour
	tests := []struct {
		name    string
		path    string
		cluster people.Cluster
		reserve time.Duration
		want    bool
	}{
		{"good for long", path, cluster, 30 * day, true},
		{"ends too soon", path, cluster, 366 * day, false},
		{"of another cluster", path, other, 30 * day, false},
		{"not there", path + ".gone", cluster, 30 * day, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := people.Good(test.path, test.cluster, test.reserve); got != test.want {
				t.Errorf("good: %v, want %v", got, test.want)
			}
		})
	}
}
