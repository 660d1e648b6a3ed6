// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/controllers/servingcertificate"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	// propagation is how long the stack's controller waits for others during a rotation; minutes in a real cluster.
	propagation = 6 * time.Second
	// rounds is how often certificate and authority are replaced.
	rounds = 3
	// pause is the time between two requests of one client.
	pause = 25 * time.Millisecond
	// loadAnnotation is what the clients write.
	loadAnnotation = "e2e.ichor.maesh.dev/load"
)

// rotatedCertificates replaces the serving certificate and its authority again and again, by a person's order, while
// clients read, write and watch through the kube-apiserver. None of their requests fails, and nothing is started again.
func rotatedCertificates(t *testing.T, s *suite) {
	starts := s.startsOf()
	load := s.startLoad(t)
	first := s.secret(t, servingcertificate.SecretName)
	for round := range rounds {
		before := s.secret(t, servingcertificate.AuthoritySecretName)
		s.orderRotation(t, servingcertificate.AuthoritySecretName)
		s.awaitRotation(t, before)
		t.Logf("round %d: %d requests so far", round+1, load.requests.Load())
	}
	before := s.secret(t, servingcertificate.SecretName)
	s.orderRotation(t, servingcertificate.SecretName)
	eventually(t, time.Minute, func() error {
		now := s.secret(t, servingcertificate.SecretName)
		if bytes.Equal(now.Data[corev1.TLSCertKey], before.Data[corev1.TLSCertKey]) {
			return fmt.Errorf("the serving certificate wasn't replaced: %v", now.Annotations)
		}
		return s.everyReplicaServes(now)
	})
	load.end(t)
	if got := s.startsOf(); fmt.Sprint(got) != fmt.Sprint(starts) {
		t.Errorf("processes were started again: %v, then %v", starts, got)
	}
	if now := s.secret(t, servingcertificate.SecretName); bytes.Equal(now.Data[corev1.TLSCertKey], first.Data[corev1.TLSCertKey]) {
		t.Error("the servers have the certificate that they started with")
	}
	s.expectExpiryMetrics(t)
}

// startsOf is how often each part was started.
func (s *suite) startsOf() []string {
	var out []string
	for _, c := range append(s.stack.APIServers(), s.stack.Controllers()...) {
		out = append(out, fmt.Sprintf("%s: %d", c.Name, c.Starts()))
	}
	return out
}

func (s *suite) secret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	secret, err := s.kubernetes.CoreV1().Secrets(artifacts.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// orderRotation says that what was made until now is to be replaced, as the document tells a person to.
func (s *suite) orderRotation(t *testing.T, secret string) {
	t.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	s.must(t, s.stack.Dir().Kubeconfig(), "kubectl", "-n", artifacts.Namespace, "annotate", "--overwrite", "secret", secret, servingcertificate.AnnotationRotateBefore+"="+now)
}

// awaitRotation waits until a new authority has the place of another one everywhere.
func (s *suite) awaitRotation(t *testing.T, before *corev1.Secret) {
	t.Helper()
	registered, err := aggregator.NewForConfig(s.stack.Admin())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute+4*propagation, func() error {
		authority, serving := s.secret(t, servingcertificate.AuthoritySecretName), s.secret(t, servingcertificate.SecretName)
		certificate := authority.Data[corev1.TLSCertKey]
		if bytes.Equal(certificate, before.Data[corev1.TLSCertKey]) {
			return fmt.Errorf("the authority wasn't replaced: %v", authority.Annotations)
		}
		if len(authority.Data["retired.crt"]) > 0 {
			return fmt.Errorf("the earlier authority wasn't dropped: %v", authority.Annotations)
		}
		service, err := registered.ApiregistrationV1().APIServices().Get(t.Context(), artifacts.APIServiceName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !bytes.Equal(service.Spec.CABundle, certificate) || !bytes.Equal(serving.Data["ca.crt"], certificate) {
			return fmt.Errorf("the new authority isn't the only one that is trusted: %v", service.Annotations)
		}
		return s.everyReplicaServes(serving)
	})
}

// everyReplicaServes looks which certificate each ichor-apiserver presents to a new connection.
func (s *suite) everyReplicaServes(secret *corev1.Secret) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(secret.Data["ca.crt"])
	want, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
	for n := range s.stack.Replicas() {
		address := strings.TrimPrefix(s.stack.Direct(s.stack.Admin(), n).Host, "https://")
		dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: 5 * time.Second}, Config: &tls.Config{RootCAs: roots, ServerName: "ichor-apiserver.ichor-system.svc", MinVersion: tls.VersionTLS12}}
		connection, err := dialer.Dial("tcp", address)
		if err != nil {
			return fmt.Errorf("ichor-apiserver %d: %w", n+1, err)
		}
		presented := connection.(*tls.Conn).ConnectionState().PeerCertificates[0]
		if err := connection.Close(); err != nil {
			return err
		}
		if !bytes.Equal(presented.Raw, want.Bytes) {
			return fmt.Errorf("ichor-apiserver %d presents the certificate of %s", n+1, presented.NotBefore)
		}
	}
	return nil
}

// expectExpiryMetrics looks at what an alert would be made of.
func (s *suite) expectExpiryMetrics(t *testing.T) {
	t.Helper()
	block, _ := pem.Decode(s.secret(t, servingcertificate.SecretName).Data[corev1.TLSCertKey])
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, func() error {
		response, err := http.Get("http://" + s.stack.ControllerHealth(0) + "/metrics")
		if err != nil {
			return err
		}
		defer response.Body.Close() //nolint:errcheck // read only
		text, err := io.ReadAll(io.LimitReader(response.Body, 4<<20))
		if err != nil {
			return err
		}
		for _, line := range strings.Split(string(text), "\n") {
			var value float64
			if n, _ := fmt.Sscanf(line, `ichor_serving_certificate_expiration_timestamp_seconds{certificate="serving"} %g`, &value); n == 1 {
				if int64(value) != leaf.NotAfter.Unix() {
					return fmt.Errorf("%s, want %d", line, leaf.NotAfter.Unix())
				}
				return nil
			}
		}
		return fmt.Errorf("no metric tells when the serving certificate expires")
	})
}

// load is clients that read, write and watch until end.
type load struct {
	cancel   context.CancelFunc
	group    sync.WaitGroup
	requests atomic.Int64
	// written is the last value that each writer wrote, by machine; seen is what the watch saw last.
	mu            sync.Mutex
	written, seen map[string]string
	faults        []string
}

// strict notes every answer that isn't a success, before the client library can try again.
type strict struct {
	next http.RoundTripper
	load *load
}

// RoundTrip does one request.
func (r strict) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	r.load.requests.Add(1)
	switch {
	case request.Context().Err() != nil:
	case err != nil:
		r.load.fault("%s %s: %v", request.Method, request.URL.Path, err)
	case response.StatusCode >= http.StatusBadRequest:
		body, _ := io.ReadAll(io.LimitReader(response.Body, 1024)) // what can be read of it is enough
		response.Body.Close()                                      //nolint:errcheck // read only
		response.Body = io.NopCloser(bytes.NewReader(body))
		r.load.fault("%s %s: %s: %s", request.Method, request.URL.Path, response.Status, body)
	}
	return response, err
}

func (l *load) fault(format string, arguments ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) < 20 {
		l.faults = append(l.faults, time.Now().Format(time.StampMilli)+" "+fmt.Sprintf(format, arguments...))
	}
}

// startLoad starts two readers, two writers and a watch, each with connections of its own.
func (s *suite) startLoad(t *testing.T) *load {
	t.Helper()
	list, err := s.admin.IchorV1alpha1().TalosMachines().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel, written: map[string]string{}, seen: map[string]string{}}
	t.Cleanup(func() {
		cancel()
		l.group.Wait()
	})
	config := func() *rest.Config {
		config := s.stack.Admin()
		// A connection of its own: the library shares those of equal configurations.
		config.Proxy = http.ProxyFromEnvironment
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return strict{next, l} })
		return config
	}
	watcher := client(t, config())
	begun, err := watcher.IchorV1alpha1().TalosMachines().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	l.group.Go(func() { l.follow(ctx, begun) })
	for n := range 2 {
		reader, writer, name := client(t, config()), client(t, config()), list.Items[n].Name
		l.repeat(ctx, func(int) error {
			if _, err := reader.IchorV1alpha1().TalosMachines().Get(ctx, name, metav1.GetOptions{}); err != nil {
				return err
			}
			_, err := reader.IchorV1alpha1().TalosClusters().List(ctx, metav1.ListOptions{})
			return err
		})
		l.repeat(ctx, func(turn int) error {
			value := fmt.Sprint(turn)
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{loadAnnotation: value}}})
			if err != nil {
				return err
			}
			if _, err := writer.IchorV1alpha1().TalosMachines().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return err
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.written[name] = value
			return nil
		})
	}
	return l
}

// repeat does something until ctx ends.
func (l *load) repeat(ctx context.Context, do func(turn int) error) {
	l.group.Go(func() {
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for turn := 0; ; turn++ {
			if err := do(turn); err != nil && ctx.Err() == nil {
				l.fault("%v", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
}

// follow notes what a watch tells. It is the same one from the beginning to the end.
func (l *load) follow(ctx context.Context, begun watch.Interface) {
	defer begun.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-begun.ResultChan():
			if ctx.Err() != nil {
				return
			}
			if !open || event.Type == watch.Error {
				l.fault("the watch ended: %+v", event)
				return
			}
			if m, ok := event.Object.(*v1alpha1.TalosMachine); ok {
				l.mu.Lock()
				l.seen[m.Name] = m.Annotations[loadAnnotation]
				l.mu.Unlock()
			}
		}
	}
}

// end waits until the watch saw what was written last, ends all and tells what went wrong.
func (l *load) end(t *testing.T) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.written) != 2 || len(l.seen) < 2 {
			return fmt.Errorf("written %v, seen %v", l.written, l.seen)
		}
		return nil
	})
	l.mu.Lock()
	written := fmt.Sprint(l.written)
	l.mu.Unlock()
	eventually(t, 30*time.Second, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for name := range l.written {
			var wrote, saw int
			if _, err := fmt.Sscan(l.written[name]+" "+l.seen[name], &wrote, &saw); err != nil || saw+100 < wrote {
				return fmt.Errorf("the watch saw %v, %v is written", l.seen, l.written)
			}
		}
		return nil
	})
	l.cancel()
	l.group.Wait()
	t.Logf("%d requests, last written %s", l.requests.Load(), written)
	for _, fault := range l.faults {
		t.Errorf("under load: %s", fault)
	}
}
