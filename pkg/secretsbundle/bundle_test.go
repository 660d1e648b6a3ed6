// SPDX-License-Identifier: Apache-2.0

package secretsbundle

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

var ref = v1alpha1.SecretReference{Namespace: "ichor-system", Name: "prod-secrets"}

// Two bundles for all tests: their RSA keys take seconds to make.
var one, two = sync.OnceValues(makeBundle), sync.OnceValues(makeBundle)

func makeBundle() (*Bundle, error) { return Generate(config.TalosVersion1_13, time.Now()) }

func generate(t *testing.T) *Bundle { return made(t, one) }

func another(t *testing.T) *Bundle { return made(t, two) }

func made(t *testing.T, get func() (*Bundle, error)) *Bundle {
	t.Helper()
	bundle, err := get()
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

func TestABundleReadsBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	bundle := generate(t)
	text, err := bundle.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(bundle.Hash(), again.Hash()); diff != "" {
		t.Errorf("hash (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(bundle.Talos().Secrets, again.Talos().Secrets); diff != "" {
		t.Error("tokens differ after reading back")
	}
	if bundle.Hash() == another(t).Hash() {
		t.Error("two bundles have one hash")
	}
}

func TestABundleWithAnyOtherPartHasAnotherHash(t *testing.T) {
	t.Parallel()
	bundle, other := generate(t), another(t).Talos()
	text, err := bundle.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*secrets.Bundle){
		"the cluster's ID":           func(b *secrets.Bundle) { b.Cluster.ID = other.Cluster.ID },
		"the cluster's secret":       func(b *secrets.Bundle) { b.Cluster.Secret = other.Cluster.Secret },
		"the bootstrap token":        func(b *secrets.Bundle) { b.Secrets.BootstrapToken = other.Secrets.BootstrapToken },
		"the key that encrypts etcd": func(b *secrets.Bundle) { b.Secrets.SecretboxEncryptionSecret = other.Secrets.SecretboxEncryptionSecret },
		"the old kind of key that encrypts etcd": func(b *secrets.Bundle) {
			b.Secrets.AESCBCEncryptionSecret, b.Secrets.SecretboxEncryptionSecret = b.Secrets.SecretboxEncryptionSecret, ""
		},
		"the trustd token":                   func(b *secrets.Bundle) { b.TrustdInfo.Token = other.TrustdInfo.Token },
		"the service account key":            func(b *secrets.Bundle) { b.Certs.K8sServiceAccount = other.Certs.K8sServiceAccount },
		"the certificate authority of Talos": func(b *secrets.Bundle) { b.Certs.OS = other.Certs.OS },
	} {
		parsed, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		change(parsed.talos)
		changed, err := wrap(parsed.talos)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if changed.Hash() == bundle.Hash() {
			t.Errorf("a bundle with another value of %s passes for the same", name)
		}
	}
}

func TestNoTextOfABundleGivesItAway(t *testing.T) {
	t.Parallel()
	bundle := generate(t)
	_, jsonErr := json.Marshal(bundle)
	token := bundle.Talos().Secrets.BootstrapToken
	for _, text := range []string{
		bundle.String(), fmt.Sprintf("%v", bundle), fmt.Sprintf("%+v", bundle), fmt.Sprintf("%#v", bundle), fmt.Sprintf("%s %d", bundle, bundle), fmt.Sprint(jsonErr),
	} {
		if strings.Contains(text, token) || strings.Contains(text, "PRIVATE") || strings.Contains(text, "BEGIN") {
			t.Error("a bundle's text holds a secret")
		}
	}
	for name, text := range map[string]string{
		"not YAML":      "cluster: {id: [topsecret",
		"a wrong type":  "secrets: topsecret",
		"a broken key":  "certs: {os: {crt: topsecret, key: topsecret}}",
		"not a mapping": "topsecret",
	} {
		_, err := Parse([]byte(text))
		if err == nil || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: want an error that quotes nothing, got %v", name, err)
		}
	}
}

func TestParseNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte("cluster: {id: a, secret: b}\n"))
	if err == nil || !strings.Contains(err.Error(), "trustdinfo is required") || !strings.Contains(err.Error(), "certs is required") {
		t.Fatalf("want all that is missing, got %v", err)
	}
}

func TestTalosCertificate(t *testing.T) {
	t.Parallel()
	bundle, now := generate(t), time.Now()
	credentials, err := bundle.Credentials(now, role.Admin, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	leaf := parse(t, credentials.Certificate)
	verify(t, leaf, credentials.CA, now)
	if diff := cmp.Diff([]string{"os:admin"}, leaf.Subject.Organization); diff != "" {
		t.Errorf("roles (-want +got):\n%s", diff)
	}
	// Talos: internal/app/apid/service.go demands exactly this usage.
	if diff := cmp.Diff([]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, leaf.ExtKeyUsage); diff != "" {
		t.Errorf("extended usage (-want +got):\n%s", diff)
	}
	if got := leaf.NotAfter.Sub(now); got > time.Hour+time.Second || got < time.Hour-2*time.Second {
		t.Errorf("the certificate ends in %s, want an hour", got)
	}
	if leaf.NotBefore.After(now.Add(-time.Minute)) {
		t.Errorf("the certificate is valid from %s: a machine whose clock is behind would refuse it", leaf.NotBefore)
	}
}

func TestEtcdCertificate(t *testing.T) {
	t.Parallel()
	bundle, now := generate(t), time.Now()
	pair, err := bundle.EtcdClient(now, "ichor-apiserver", 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	leaf := parse(t, pair.Certificate)
	verify(t, leaf, pair.CA, now)
	if leaf.Subject.CommonName != "ichor-apiserver" {
		t.Errorf("common name is %q", leaf.Subject.CommonName)
	}
}

func parse(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatal("not PEM")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func verify(t *testing.T, leaf *x509.Certificate, authority []byte, now time.Time) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Fatal(err)
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	bundle := generate(t)
	text, err := bundle.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	secret := func(data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}, Data: data}
	}
	cluster := func(hash string) *v1alpha1.TalosCluster {
		return &v1alpha1.TalosCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "prod"},
			Spec:       v1alpha1.TalosClusterSpec{SecretsRef: ref},
			Status:     v1alpha1.TalosClusterStatus{SecretsBundleHash: hash},
		}
	}
	cases := map[string]struct {
		secret *corev1.Secret
		hash   string
		want   error
	}{
		"no Secret":                         {want: ErrMissing},
		"a Secret without the key":          {secret: secret(map[string][]byte{"other": text}), want: ErrMissing},
		"a Secret with something else":      {secret: secret(map[string][]byte{v1alpha1.SecretsBundleKey: []byte("hello")}), want: ErrInvalid},
		"the first time":                    {secret: secret(map[string][]byte{v1alpha1.SecretsBundleKey: text})},
		"the one the cluster was made with": {secret: secret(map[string][]byte{v1alpha1.SecretsBundleKey: text}), hash: bundle.Hash()},
		"another one":                       {secret: secret(map[string][]byte{v1alpha1.SecretsBundleKey: text}), hash: another(t).Hash(), want: ErrChanged},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset()
			if tc.secret != nil {
				client = fake.NewClientset(tc.secret)
			}
			got, err := Store{Secrets: client.CoreV1()}.LoadFor(t.Context(), cluster(tc.hash))
			if !errors.Is(err, tc.want) {
				t.Fatalf("want %v, got %v", tc.want, err)
			}
			if tc.want == nil && got.Hash() != bundle.Hash() {
				t.Error("got another bundle")
			}
		})
	}
}

func TestABundleIsNeverOverwritten(t *testing.T) {
	t.Parallel()
	store := Store{Secrets: fake.NewClientset().CoreV1()}
	first, second := generate(t), another(t)
	if err := store.Create(t.Context(), ref, "prod", first); err != nil {
		t.Fatal(err)
	}
	if err := store.Create(t.Context(), ref, "prod", second); !errors.Is(err, ErrExists) {
		t.Fatalf("want %v, got %v", ErrExists, err)
	}
	kept, err := store.Load(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if kept.Hash() != first.Hash() {
		t.Error("the first bundle is gone")
	}
}

func TestCredentialsAreRenewedAtHalfOfTheirLife(t *testing.T) {
	t.Parallel()
	store := Store{Secrets: fake.NewClientset().CoreV1()}
	bundle := generate(t)
	if err := store.Create(t.Context(), ref, "prod", bundle); err != nil {
		t.Fatal(err)
	}
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}, Spec: v1alpha1.TalosClusterSpec{SecretsRef: ref}}
	clock := clocktesting.NewFakePassiveClock(time.Now())
	provider := NewProvider(store, func(string) (*v1alpha1.TalosCluster, error) { return cluster, nil }, clock)
	get := func() talos.Credentials {
		t.Helper()
		credentials, err := provider.CredentialsFor(t.Context(), "prod")
		if err != nil {
			t.Fatal(err)
		}
		return credentials
	}
	first := get()
	clock.SetTime(clock.Now().Add(CredentialsTTL/2 - time.Second))
	if diff := cmp.Diff(first, get()); diff != "" {
		t.Error("renewed before half of its life")
	}
	clock.SetTime(clock.Now().Add(7 * 24 * time.Hour))
	if later := get(); !later.NotAfter.After(clock.Now()) {
		t.Errorf("after a week asleep the certificate ended %s", later.NotAfter)
	}
	cluster = cluster.DeepCopy()
	cluster.Status.SecretsBundleHash = "0123456789abcdef"
	if _, err := provider.CredentialsFor(t.Context(), "prod"); !errors.Is(err, ErrChanged) {
		t.Errorf("want %v, got %v", ErrChanged, err)
	}
}
