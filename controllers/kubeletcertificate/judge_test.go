// SPDX-License-Identifier: Apache-2.0

package kubeletcertificate

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/url"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// scene is a request and what it is held against; each case changes what it is about.
type scene struct {
	template x509.CertificateRequest
	key      crypto.Signer
	csr      certificatesv1.CertificateSigningRequest
	cluster  v1alpha1.TalosCluster
	machine  v1alpha1.TalosMachine
	others   []*v1alpha1.TalosMachine
	// spoil changes the text of the request after it was made.
	spoil func([]byte) []byte
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// machine is an approved worker with a node of its hostname.
func machine(name, hostname, address string) v1alpha1.TalosMachine {
	m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	m.Spec.ApprovalState, m.Spec.Role, m.Spec.Hostname = v1alpha1.ApprovalApproved, v1alpha1.RoleWorker, hostname
	m.Spec.ClusterRef.Name = "c"
	m.Status.NodeName, m.Status.Hostname, m.Status.Addresses = hostname, hostname, []string{address, "fd00::" + address[strings.LastIndex(address, ".")+1:]}
	m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue}}
	return m
}

// honest is what a kubelet asks for.
func honest(t *testing.T) *scene {
	t.Helper()
	other := machine("m2", "w2", "10.0.0.12")
	s := &scene{
		template: x509.CertificateRequest{
			Subject:  pkix.Name{CommonName: "system:node:w1", Organization: []string{"system:nodes"}},
			DNSNames: []string{"w1"}, IPAddresses: []net.IP{net.ParseIP("10.0.0.11"), net.ParseIP("fd00::11")},
		},
		key: newKey(t),
		csr: certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "csr-1", UID: "uid-csr-1"},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: certificatesv1.KubeletServingSignerName, Username: "system:node:w1", Groups: []string{"system:nodes", "system:authenticated"},
				Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
			},
		},
		cluster: v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "c"}},
		machine: machine("m1", "w1", "10.0.0.11"),
		others:  []*v1alpha1.TalosMachine{&other},
	}
	s.cluster.Spec.Hardening.KubeletServingCertificates = true
	s.cluster.Spec.ControlPlane.Endpoint.Host = "10.0.0.5"
	s.cluster.Spec.Network = v1alpha1.ClusterNetwork{DNSDomain: "cluster.local", ServiceCIDRs: []string{"10.96.0.0/12"}}
	return s
}

func (s *scene) request(t *testing.T) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &s.template, s.key)
	if err != nil {
		t.Fatal(err)
	}
	csr := s.csr.DeepCopy()
	csr.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	if s.spoil != nil {
		csr.Spec.Request = s.spoil(csr.Spec.Request)
	}
	return csr
}

func (s *scene) around() surroundings {
	return surroundings{append([]*v1alpha1.TalosMachine{&s.machine}, s.others...), func(name string) *v1alpha1.TalosCluster {
		if name != s.cluster.Name {
			return nil
		}
		return &s.cluster
	}}
}

func TestJudgement(t *testing.T) {
	t.Parallel()
	weakKey, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // a weak key is what is tested
	if err != nil {
		t.Fatal(err)
	}
	oddCurve, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	link, err := url.Parse("spiffe://cluster/w1")
	if err != nil {
		t.Fatal(err)
	}
	asks := func(names []string, addresses ...string) func(*scene) {
		return func(s *scene) {
			s.template.DNSNames, s.template.IPAddresses = names, nil
			for _, address := range addresses {
				s.template.IPAddresses = append(s.template.IPAddresses, net.ParseIP(address))
			}
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*scene)
		want   verdict
		says   string
	}{
		{"what a kubelet asks for", func(*scene) {}, approve, "is the machine's"},
		{"with a usage that RSA keys need", func(s *scene) {
			s.csr.Spec.Usages = append(s.csr.Spec.Usages, certificatesv1.UsageKeyEncipherment)
		}, approve, ""},
		{"a declared address that wasn't observed yet", func(s *scene) {
			s.machine.Spec.Network = &v1alpha1.MachineNetwork{Addresses: []string{"10.0.0.99/24"}}
			asks([]string{"w1"}, "10.0.0.99")(s)
		}, approve, ""},
		{"the address of an adopted machine", func(s *scene) { s.machine.Spec.Address = "10.0.0.98"; asks(nil, "10.0.0.98")(s) }, approve, ""},
		{"the machine's long name", func(s *scene) { s.machine.Status.Hostname = "w1.example.org"; asks([]string{"w1.example.org"})(s) }, approve, ""},
		{"a long name that the machine was approved with", func(s *scene) { s.machine.Spec.Hostname = "w1.example.org"; asks([]string{"W1.example.org"})(s) }, approve, ""},
		{"a control plane at the API's address, which is its own", func(s *scene) {
			s.machine.Spec.Role = v1alpha1.RoleControlPlane
			s.cluster.Spec.ControlPlane.Endpoint.Host = "10.0.0.11"
		}, approve, ""},
		{"an address that a silent machine had once", func(s *scene) {
			s.others[0].Status.Addresses, s.others[0].Status.Conditions = []string{"10.0.0.11"}, nil
		}, approve, ""},

		{"another signer's", func(s *scene) { s.csr.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName }, leaveAlone, ""},
		{"a node of no machine", func(s *scene) { s.csr.Spec.Username, s.template.Subject.CommonName = "system:node:x", "system:node:x" }, leaveAlone, ""},
		{"a machine whose node isn't known yet", func(s *scene) { s.machine.Status.NodeName = "" }, leaveAlone, ""},
		{"a machine that nobody approved", func(s *scene) { s.machine.Spec.ApprovalState = v1alpha1.ApprovalPending }, leaveAlone, ""},
		{"a cluster that doesn't ask for such certificates", func(s *scene) { s.cluster.Spec.Hardening.KubeletServingCertificates = false }, leaveAlone, ""},
		{"a cluster that is gone", func(s *scene) { s.cluster.Name = "other" }, leaveAlone, ""},
		{"approved by somebody", func(s *scene) {
			s.csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
		}, leaveAlone, ""},
		{"denied by somebody", func(s *scene) {
			s.csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied}}
		}, leaveAlone, ""},
		{"a person's request for his own page", func(s *scene) { s.csr.Spec.Username, s.template.Subject.CommonName = "eve", "eve" }, leaveAlone, ""},
		{"text of a stranger that is no request", func(s *scene) {
			s.csr.Spec.Username, s.spoil = "eve", func([]byte) []byte { return []byte("x") }
		}, leaveAlone, ""},

		{"a person asks for the node", func(s *scene) { s.csr.Spec.Username = "eve" }, deny, `"eve" asks for a serving certificate of node w1`},
		{"another node asks for the node", func(s *scene) { s.csr.Spec.Username = "system:node:w2" }, deny, "its common name is"},
		{"a name like a node's without its group", func(s *scene) { s.csr.Spec.Groups = []string{"system:authenticated"} }, deny, "only the node itself"},
		{"another organization", func(s *scene) { s.template.Subject.Organization = []string{"system:masters"} }, deny, "organization"},
		{"one organization more", func(s *scene) { s.template.Subject.Organization = []string{"system:nodes", "system:masters"} }, deny, "organization"},
		{"client auth", func(s *scene) { s.csr.Spec.Usages = append(s.csr.Spec.Usages, certificatesv1.UsageClientAuth) }, deny, "usages"},
		{"no server auth", func(s *scene) { s.csr.Spec.Usages = s.csr.Spec.Usages[:1] }, deny, "usages"},
		{"a URI", func(s *scene) { s.template.URIs = []*url.URL{link} }, deny, "URIs"},
		{"an e-mail address", func(s *scene) { s.template.EmailAddresses = []string{"a@example.org"} }, deny, "e-mail"},
		{"nothing asked for", asks(nil), deny, "no name and no address"},
		{"a short RSA key", func(s *scene) { s.key = weakKey }, deny, "1024 bits"},
		{"a curve that nobody uses", func(s *scene) { s.key = oddCurve }, deny, "kind that is not taken"},
		{"no request at all", func(s *scene) { s.spoil = func([]byte) []byte { return []byte("x") } }, deny, "not one PEM block"},
		{"two requests in one", func(s *scene) { s.spoil = func(text []byte) []byte { return append(text, text...) } }, deny, "not one PEM block"},
		{"a giant", func(s *scene) { s.spoil = func([]byte) []byte { return make([]byte, maxRequest+1) } }, deny, "larger"},
		{"a signature of another key", func(s *scene) {
			s.spoil = func(text []byte) []byte {
				block, _ := pem.Decode(text)
				block.Bytes[len(block.Bytes)-1] ^= 1
				return pem.EncodeToMemory(block)
			}
		}, deny, "not signed by the key"},

		{"an address that wasn't observed", asks([]string{"w1"}, "10.0.0.11", "10.0.0.77"), hold, "10.0.0.77 is none of the machine's addresses, which are 10.0.0.11, fd00::11"},
		{"another machine's name", asks([]string{"w2"}), hold, `"w2" is no name of the machine`},
		{"another machine's address, which the machine gave itself", func(s *scene) {
			s.machine.Status.Addresses = append(s.machine.Status.Addresses, "10.0.0.12")
			asks(nil, "10.0.0.12")(s)
		}, hold, "also an address of machine m2"},
		{"an address that another machine is to have", func(s *scene) {
			s.others[0].Status = v1alpha1.TalosMachineStatus{}
			s.others[0].Spec.Network = &v1alpha1.MachineNetwork{Addresses: []string{"10.0.0.11/24"}}
		}, hold, "also an address of machine m2"},
		{"a name of the API, which the machine gave itself", func(s *scene) {
			s.machine.Spec.Hostname, s.machine.Status.NodeName, s.machine.Status.Hostname = "", "kubernetes", "kubernetes"
			s.csr.Spec.Username, s.template.Subject.CommonName = "system:node:kubernetes", "system:node:kubernetes"
			asks([]string{"kubernetes"})(s)
		}, hold, "a name of the Kubernetes API"},
		{"a Service's name, which the machine gave itself", func(s *scene) {
			s.machine.Status.Hostname = "w1.ns.svc.cluster.local"
			asks([]string{"w1.ns.svc.cluster.local"})(s)
		}, hold, "a name of the Kubernetes API"},
		{"a worker at the API's address", func(s *scene) {
			s.machine.Status.Addresses = append(s.machine.Status.Addresses, "10.0.0.5")
			asks(nil, "10.0.0.5")(s)
		}, hold, "the machine is a worker"},
		{"a Service's address", func(s *scene) {
			s.machine.Status.Addresses = append(s.machine.Status.Addresses, "10.96.0.1")
			asks(nil, "10.96.0.1")(s)
		}, hold, "an address of Services"},
		{"the loopback", func(s *scene) {
			s.machine.Status.Addresses = append(s.machine.Status.Addresses, "127.0.0.1")
			asks(nil, "127.0.0.1")(s)
		}, hold, "no address of one machine"},
		{"a node that isn't called as was approved", func(s *scene) { s.machine.Spec.Hostname = "w9" }, hold, "approved with the hostname w9"},
		{"two machines that say that the node is theirs", func(s *scene) { s.others[0].Status.NodeName = "w1" }, hold, "machines m1 and m2 both say"},
		{"a machine that is being removed", func(s *scene) { now := metav1.Now(); s.machine.DeletionTimestamp = &now }, hold, "is being removed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := honest(t)
			tc.change(s)
			got := judge(s.request(t), s.around())
			if got.verdict != tc.want || !strings.Contains(got.message, tc.says) {
				t.Errorf("verdict %d, %q; want %d, %q", got.verdict, got.message, tc.want, tc.says)
			}
			if (got.machine == nil) != (tc.want == leaveAlone) {
				t.Errorf("the machine it is about: %v", got.machine)
			}
			if (got.reason == "") == (tc.want == deny) {
				t.Errorf("reason %q of verdict %d", got.reason, got.verdict)
			}
		})
	}
}
