// SPDX-License-Identifier: Apache-2.0

package kubeletcertificate

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned/fake"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
)

// world is a running controller and the APIs it works with.
type world struct {
	kube   *kubefake.Clientset
	ichor  *fake.Clientset
	events *record.FakeRecorder
}

func start(t *testing.T, s *scene) *world {
	t.Helper()
	w := &world{kubefake.NewClientset(), fake.NewSimpleClientset(&s.cluster, &s.machine, s.others[0]), record.NewFakeRecorder(64)}
	requests := coreinformers.NewSharedInformerFactory(w.kube, 0)
	ichor := externalversions.NewSharedInformerFactory(w.ichor, 0)
	c, err := New(Config{
		Requests: requests.Certificates().V1().CertificateSigningRequests(), Client: w.kube.CertificatesV1(),
		Machines: ichor.Ichor().V1alpha1().TalosMachines(), Clusters: ichor.Ichor().V1alpha1().TalosClusters(), Recorder: w.events,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	requests.Start(ctx.Done())
	ichor.Start(ctx.Done())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		requests.Shutdown()
		ichor.Shutdown()
	})
	return w
}

func (w *world) ask(t *testing.T, s *scene) {
	t.Helper()
	if _, err := w.kube.CertificatesV1().CertificateSigningRequests().Create(t.Context(), s.request(t), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// decision waits until a request has the condition.
func (w *world) decision(t *testing.T, name string, want certificatesv1.RequestConditionType) certificatesv1.CertificateSigningRequestCondition {
	t.Helper()
	var found certificatesv1.CertificateSigningRequestCondition
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		csr, err := w.kube.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if len(csr.Status.Conditions) == 0 {
			return false, nil
		}
		if found = csr.Status.Conditions[0]; found.Type != want {
			return false, fmt.Errorf("it is %s: %s", found.Type, found.Message)
		}
		return true, nil
	})
	if err != nil {
		t.Fatalf("request %s, which is to be %s: %v", name, want, err)
	}
	return found
}

func (w *world) event(t *testing.T) string {
	t.Helper()
	select {
	case event := <-w.events.Events:
		return event
	case <-time.After(30 * time.Second):
		t.Fatal("no event")
		return ""
	}
}

func TestAnHonestRequestIsApprovedAndAForgedOneDenied(t *testing.T) {
	t.Parallel()
	s := honest(t)
	w := start(t, s)
	w.ask(t, s)
	if got := w.decision(t, "csr-1", certificatesv1.CertificateApproved); got.Reason != reasonApproved || !strings.Contains(got.Message, "m1") {
		t.Errorf("condition %+v", got)
	}
	if got := w.event(t); !strings.Contains(got, "Normal "+reasonApproved) {
		t.Errorf("event %q", got)
	}
	s.csr.Name, s.template.Subject = "csr-2", pkix.Name{CommonName: "system:node:w1", Organization: []string{"system:masters"}}
	w.ask(t, s)
	if got := w.decision(t, "csr-2", certificatesv1.CertificateDenied); got.Reason != reasonMalformed || !strings.Contains(got.Message, "organization") {
		t.Errorf("condition %+v", got)
	}
	if got := w.event(t); !strings.Contains(got, "Warning "+reasonDenied) {
		t.Errorf("event %q", got)
	}
}

func TestARequestWaitsUntilItsAddressIsObserved(t *testing.T) {
	t.Parallel()
	s := honest(t)
	observed := s.machine.Status.Addresses
	s.machine.Status.Addresses = []string{"10.0.0.44"}
	w := start(t, s)
	w.ask(t, s)
	for range 2 { // on the machine, and on the request
		if got := w.event(t); !strings.Contains(got, "Warning "+reasonWaiting) || !strings.Contains(got, "10.0.0.11 is none of the machine's addresses") {
			t.Errorf("event %q", got)
		}
	}
	s.machine.Status.Addresses = observed
	if _, err := w.ichor.IchorV1alpha1().TalosMachines().UpdateStatus(t.Context(), &s.machine, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.decision(t, "csr-1", certificatesv1.CertificateApproved)
	if got := w.event(t); !strings.Contains(got, reasonApproved) {
		t.Errorf("the same is said again: %q", got)
	}
}

func TestARequestThatCameBeforeTheNodeWasKnownIsApprovedThen(t *testing.T) {
	t.Parallel()
	s := honest(t)
	s.machine.Status.NodeName = ""
	s.cluster.Spec.Hardening.KubeletServingCertificates = false
	w := start(t, s)
	w.ask(t, s)
	s.machine.Status.NodeName = "w1"
	if _, err := w.ichor.IchorV1alpha1().TalosMachines().UpdateStatus(t.Context(), &s.machine, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.cluster.Spec.Hardening = v1alpha1.Hardening{KubeletServingCertificates: true}
	if _, err := w.ichor.IchorV1alpha1().TalosClusters().Update(t.Context(), &s.cluster, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.decision(t, "csr-1", certificatesv1.CertificateApproved)
}
