// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"maesh.dev/ichor/test/localstack"
)

// kubeletCertificates has the cluster ask for serving certificates of kubelets. Each kubelet of a machine gets one that
// holds for its name and address; what somebody else asks for in a node's name is denied, and what the node itself asks for
// beyond what is its own isn't approved.
func kubeletCertificates(t *testing.T, s *suite) {
	patch := []byte(`{"spec":{"hardening":{"kubeletServingCertificates":true}}}`)
	if _, err := s.admin.IchorV1alpha1().TalosClusters().Patch(t.Context(), localstack.ClusterName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	requests := s.kubernetes.CertificatesV1().CertificateSigningRequests()
	machines := s.ready(t)
	eventually(t, 4*time.Minute, func() error {
		list, err := requests.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.signerName=" + certificatesv1.KubeletServingSignerName})
		if err != nil {
			return err
		}
		for _, m := range machines {
			if err := servesAs(list.Items, m.Status.NodeName, m.Status.Addresses[0]); err != nil {
				return fmt.Errorf("machine %s: %w", m.Name, err)
			}
		}
		return nil
	})

	one := machines[len(machines)-1]
	user := "system:node:" + one.Status.NodeName
	forged := s.askForServing(t, s.kubernetes, user, one.Status.NodeName)
	eventually(t, time.Minute, func() error {
		got, err := requests.Get(t.Context(), forged, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(got.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == certificatesv1.CertificateDenied && strings.Contains(c.Message, "only the node itself may")
		}) {
			return fmt.Errorf("what a person asked for in a node's name is %+v", got.Status.Conditions)
		}
		return nil
	})

	config := rest.CopyConfig(s.stack.Admin())
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:nodes", "system:authenticated"}}
	node, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	greedy := s.askForServing(t, node, user, "kubernetes.default.svc")
	eventually(t, time.Minute, func() error {
		events, err := s.kubernetes.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + one.Name})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if strings.Contains(event.Message, greedy) && strings.Contains(event.Message, "a name of the Kubernetes API") {
				return nil
			}
		}
		return errors.New("nobody is told that a node asked for the API's name")
	})
	if got, err := requests.Get(t.Context(), greedy, metav1.GetOptions{}); err != nil || len(got.Status.Conditions) > 0 || len(got.Status.Certificate) > 0 {
		t.Errorf("a node's request for the API's name is %+v, want it undecided (%v)", got.Status, err)
	}
}

// servesAs says why a node has no serving certificate for its name and address.
func servesAs(requests []certificatesv1.CertificateSigningRequest, node, address string) error {
	state := "it asked for none"
	for _, request := range requests {
		if request.Spec.Username != "system:node:"+node {
			continue
		}
		state = fmt.Sprintf("its request %s is %+v", request.Name, request.Status.Conditions)
		block, _ := pem.Decode(request.Status.Certificate)
		if block == nil {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		return errors.Join(certificate.VerifyHostname(node), certificate.VerifyHostname(address))
	}
	return errors.New(state)
}

// askForServing makes a request for a serving certificate and returns its name.
func (s *suite) askForServing(t *testing.T, as *kubernetes.Clientset, user, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: user, Organization: []string{"system:nodes"}}, DNSNames: []string{name},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	made, err := as.CertificatesV1().CertificateSigningRequests().Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: certificatesv1.KubeletServingSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Name
}
