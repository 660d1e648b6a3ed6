// SPDX-License-Identifier: Apache-2.0

package servingcertificate

import (
	"context"
	"crypto/x509"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// world is a cluster of a test.
type world struct {
	t          *testing.T
	clock      *clocktesting.FakeClock
	kube       *kubefake.Clientset
	aggregator *aggregatorfake.Clientset
	controller *Controller
	writes     int
	// fail says whether a write is lost, before or after it was made.
	fail func() (before, after bool)
}

var errLost = errors.New("the connection was lost")

func newWorld(t *testing.T, service *apiregistrationv1.APIService, settings Settings) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), kube: kubefake.NewClientset(),
		fail: func() (bool, bool) { return false, false },
	}
	var objects []runtime.Object
	if service != nil {
		objects = append(objects, service)
	}
	w.aggregator = aggregatorfake.NewClientset(objects...)
	for _, each := range []*clienttesting.Fake{&w.kube.Fake, &w.aggregator.Fake} {
		tracker := clienttesting.ObjectReaction(w.kube.Tracker())
		if each == &w.aggregator.Fake {
			tracker = clienttesting.ObjectReaction(w.aggregator.Tracker())
		}
		for _, verb := range []string{"create", "update"} {
			each.PrependReactor(verb, "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				before, after := w.fail()
				if before {
					return true, nil, errLost
				}
				w.writes++
				handled, object, err := tracker(action)
				if err == nil && after {
					return true, nil, errLost
				}
				return handled, object, err
			})
		}
	}
	var err error
	w.controller, err = New(Config{
		Kubernetes: w.kube, Aggregator: w.aggregator, Recorder: &record.FakeRecorder{}, Settings: settings, Clock: w.clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func registered() *apiregistrationv1.APIService {
	port := int32(443)
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: APIServiceName},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: v1alpha1.GroupName, Version: "v1alpha1",
			Service: &apiregistrationv1.ServiceReference{Namespace: v1alpha1.SystemNamespace, Name: ServiceName, Port: &port},
		},
	}
}

// state is what is stored now, judged.
func (w *world) state() observed {
	w.t.Helper()
	have, err := w.controller.get(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return read(have.authority, have.serving, have.service)
}

// order annotates a Secret as a person would.
func (w *world) order(secret string) {
	w.t.Helper()
	have, err := w.kube.CoreV1().Secrets(v1alpha1.SystemNamespace).Get(w.t.Context(), secret, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	annotate(have, AnnotationRotateBefore, w.clock.Now())
	if err := w.kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("secrets"), have, v1alpha1.SystemNamespace); err != nil {
		w.t.Fatal(err)
	}
}

// view is something that was true from a time on.
type view struct {
	bundle       []*x509.Certificate
	leaf, issuer *x509.Certificate
	from         time.Time
}

// slow are kube-apiservers and servers that see every change up to the propagation late: at no moment may any of
// the first refuse any of the second. Nor may a server be refused that was cut off, and serves what it had until that
// expires, but where a person ordered that the authority goes.
type slow struct {
	t              *testing.T
	lag            time.Duration
	bundles, leafs []view
	checked        int
	// authorities are all that there ever were.
	authorities []*x509.Certificate
}

// issuer is the authority of a serving certificate.
func (l *slow) issuer(leaf *x509.Certificate) *x509.Certificate {
	for _, each := range l.authorities {
		if leaf.CheckSignatureFrom(each) == nil {
			return each
		}
	}
	l.t.Fatalf("no authority made the certificate of %s", leaf.Issuer)
	return nil
}

func (l *slow) see(o observed, now time.Time) {
	l.t.Helper()
	if o.served.certificate == nil || len(o.published.bundle) == 0 {
		return
	}
	for _, each := range o.authorities.bundle() {
		if !slices.ContainsFunc(l.authorities, each.Equal) {
			l.authorities = append(l.authorities, each)
		}
	}
	if n := len(l.bundles); n == 0 || !same(l.bundles[n-1].bundle, o.published.bundle) {
		l.bundles = append(l.bundles, view{bundle: o.published.bundle, from: now})
	}
	if n := len(l.leafs); n == 0 || !l.leafs[n-1].leaf.Equal(o.served.certificate) {
		l.leafs = append(l.leafs, view{leaf: o.served.certificate, issuer: l.issuer(o.served.certificate), from: now})
	}
	for _, each := range l.leafs {
		if issuer := each.issuer; valid(each.leaf, now) && !made(issuer).Before(o.authorities.rotateBefore) && !slices.ContainsFunc(o.published.bundle, issuer.Equal) {
			l.t.Fatalf("at %s: a server that was cut off is refused: %s isn't trusted any more, its certificate is good until %s", now, issuer.Subject, each.leaf.NotAfter)
		}
	}
	for _, bundle := range recent(l.bundles, now, l.lag) {
		roots := x509.NewCertPool()
		for _, certificate := range bundle.bundle {
			roots.AddCert(certificate)
		}
		for _, served := range recent(l.leafs, now, l.lag) {
			l.checked++
			if _, err := served.leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: ServiceName + ".ichor-system.svc"}); err != nil {
				l.t.Fatalf("at %s: a kube-apiserver that trusts %s refuses a server whose certificate was made %s by %s: %v", now, names(bundle.bundle), made(served.leaf), served.leaf.Issuer, err)
			}
		}
	}
}

func names(certificates []*x509.Certificate) string {
	var out []string
	for _, certificate := range certificates {
		out = append(out, certificate.Subject.CommonName)
	}
	return strings.Join(out, ", ")
}

// recent are the views that somebody may still have.
func recent(all []view, now time.Time, lag time.Duration) []view {
	first := len(all) - 1
	for first > 0 && all[first].from.After(now.Add(-lag)) {
		first--
	}
	return all[first:]
}

// TestNoKubeAPIServerEverRefusesAServer lives through years of rotations, ordered ones too, with writes that are lost
// and answers that are lost.
func TestNoKubeAPIServerEverRefusesAServer(t *testing.T) {
	t.Parallel()
	for name, seed := range map[string]uint64{"one life": 1, "another": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 0))
			settings := DefaultSettings()
			w := newWorld(t, registered(), settings)
			w.fail = func() (bool, bool) { return random.IntN(4) == 0, random.IntN(4) == 0 }
			kubes := &slow{t: t, lag: settings.Propagation - 2*time.Second}
			end := w.clock.Now().Add(2 * 365 * day)
			wait := time.Duration(0)
			for w.clock.Now().Before(end) {
				w.clock.Step(wait)
				if kubes.checked > 0 && random.IntN(400) == 0 {
					w.order([]string{AuthoritySecretName, SecretName}[random.IntN(2)])
				}
				after, err := w.controller.Reconcile(t.Context())
				if err != nil && !errors.Is(err, errLost) {
					t.Fatal(err)
				}
				o := w.state()
				if len(o.faults) > 0 || o.notOurs != "" || len(o.authorities.retired) > 4 {
					t.Fatalf("faults %v, not ours %q, %d retired authorities", o.faults, o.notOurs, len(o.authorities.retired))
				}
				kubes.see(o, w.clock.Now())
				// Mostly as asked; sometimes nobody leads for a while.
				switch {
				case err != nil:
					wait = time.Second
				case random.IntN(20) == 0:
					wait = time.Duration(random.Int64N(int64(12 * time.Hour)))
				case after == recheck:
					wait = 6 * time.Hour
				default:
					wait = after
				}
			}
			if len(kubes.leafs) < 35 || len(kubes.bundles) < 6 {
				t.Errorf("%d serving certificates and %d bundles in two years", len(kubes.leafs), len(kubes.bundles))
			}
		})
	}
}

func TestNothingIsWrittenWhenNothingChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, registered(), DefaultSettings())
	for range 3 {
		if _, err := w.controller.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// The authority, the APIService, the serving certificate.
	if w.writes != 3 {
		t.Errorf("%d writes, want 3", w.writes)
	}
}

func TestALostAuthorityIsReplacedWithoutAGap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, registered(), DefaultSettings())
	reconcile := func() {
		t.Helper()
		if _, err := w.controller.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	reconcile()
	kubes := &slow{t: t, lag: w.controller.Settings.Propagation - 2*time.Second}
	kubes.see(w.state(), w.clock.Now())
	before := w.state()
	w.clock.Step(day)
	if err := w.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("secrets"), v1alpha1.SystemNamespace, AuthoritySecretName); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		reconcile()
		kubes.see(w.state(), w.clock.Now())
		w.clock.Step(w.controller.Settings.Propagation)
	}
	after := w.state()
	if before.served.certificate.Equal(after.served.certificate) || !after.authorities.current.signed(after.served.certificate) {
		t.Error("the server still has a certificate of the authority that was lost")
	}
	if got := after.authorities.retiredUntil; !got.Equal(before.served.certificate.NotAfter) {
		t.Errorf("the lost authority is trusted until %s, its certificate ends %s", got, before.served.certificate.NotAfter)
	}
}

func TestWhoseCertificatesTheyAre(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*apiregistrationv1.APIService)
		writes int
	}{
		"Ichor's":                       {change: func(*apiregistrationv1.APIService) {}, writes: 3},
		"cert-manager's":                {change: annotated("cert-manager.io/inject-ca-from")},
		"cert-manager's, by a Secret":   {change: annotated("cert-manager.io/inject-ca-from-secret")},
		"cert-manager's, the apiserver": {change: annotated("cert-manager.io/inject-apiserver-ca")},
		"a person's":                    {change: func(s *apiregistrationv1.APIService) { s.Spec.CABundle = []byte("something") }},
		"nobody's":                      {change: func(s *apiregistrationv1.APIService) { s.Spec.InsecureSkipTLSVerify = true }},
		"the kube-apiserver's own":      {change: func(s *apiregistrationv1.APIService) { s.Spec.Service = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := registered()
			tc.change(service)
			w := newWorld(t, service, DefaultSettings())
			if _, err := w.controller.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if w.writes != tc.writes {
				t.Errorf("%d writes, want %d", w.writes, tc.writes)
			}
		})
	}
}

func annotated(name string) func(*apiregistrationv1.APIService) {
	return func(s *apiregistrationv1.APIService) { s.Annotations = map[string]string{name: "x"} }
}

func TestASecretOfAnotherIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, registered(), DefaultSettings())
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: SecretName}, Type: corev1.SecretTypeTLS}
	if err := w.kube.Tracker().Add(theirs); err != nil {
		t.Fatal(err)
	}
	if _, err := w.controller.Reconcile(t.Context()); err != nil || w.writes != 0 {
		t.Errorf("%v, %d writes, want none", err, w.writes)
	}
}

func TestARunningControllerTakesTheAPIServiceWhenItComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, DefaultSettings())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.controller.Run(ctx) }()
	eventually(t, "a certificate before there is an API", func() bool { return w.state().served.certificate != nil })
	if _, err := w.aggregator.ApiregistrationV1().APIServices().Create(ctx, registered(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API trusts the authority", func() bool {
		o := w.state()
		return same(o.published.bundle, o.authorities.bundle())
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func eventually(t *testing.T, what string, look func() bool) {
	t.Helper()
	timer, ticker := time.NewTimer(30*time.Second), time.NewTicker(10*time.Millisecond)
	defer timer.Stop()
	defer ticker.Stop()
	for !look() {
		select {
		case <-timer.C:
			t.Fatalf("not within 30s: %s", what)
		case <-ticker.C:
		}
	}
}
