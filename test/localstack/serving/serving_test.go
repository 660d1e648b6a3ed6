// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/test/localstack/serving"
)

func TestAServingCertificateIsGoodForItsNamesOnly(t *testing.T) {
	t.Parallel()
	authority, err := serving.NewAuthority("test authority")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue([]string{"ichor-apiserver.ichor-system.svc", "localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.Certificate)
	got := map[string]bool{}
	for _, name := range []string{"ichor-apiserver.ichor-system.svc", "127.0.0.1", "other.svc"} {
		_, err := loaded.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
		got[name] = err == nil
	}
	want := map[string]bool{"ichor-apiserver.ichor-system.svc": true, "127.0.0.1": true, "other.svc": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verified (-want +got):\n%s", diff)
	}
}

func TestARequestNamesTheUserAndTheGroups(t *testing.T) {
	t.Parallel()
	request, key, err := serving.Request("operator", "ichor:operators")
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(request)
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := parsed.CheckSignature(); err != nil {
		t.Error(err)
	}
	if got := parsed.Subject.String(); got != "CN=operator,O=ichor:operators" {
		t.Errorf("subject %s", got)
	}
	if block, _ := pem.Decode(key); block == nil || block.Type != "PRIVATE KEY" {
		t.Error("the key is no PEM of a private key")
	}
}
