// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"maesh.dev/ichor/controllers/servingcertificate"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned/fake"
	"maesh.dev/ichor/pkg/client/clientset/versioned/scheme"
	"maesh.dev/ichor/pkg/talos/talostest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"the defaults":            {change: func(*Options) {}},
		"no health":               {change: func(o *Options) { o.HealthAddress = "" }},
		"no workers":              {change: func(o *Options) { o.MachineWorkers = 0 }, want: "--machine-workers: 0"},
		"an address without port": {change: func(o *Options) { o.HealthAddress = "here" }, want: "--health-address"},
		"no requests at all":      {change: func(o *Options) { o.QPS = 0 }, want: "--kube-api-qps"},
		"a lease that ends before it is renewed": {
			change: func(o *Options) { o.LeaseDuration = time.Second }, want: "--leader-elect-*",
		},
		"serving certificates that end at once": {
			change: func(o *Options) { o.ServingCertificate.LeafLifetime = 0 }, want: "lifetime of serving certificates",
		},
		"those, where something else issues them": {change: func(o *Options) { o.ServingCertificate.LeafLifetime, o.ServingCertificates = 0, false }},
		"such a lease, without election":          {change: func(o *Options) { o.LeaseDuration, o.LeaderElect = time.Second, false }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := DefaultOptions()
			tc.change(&options)
			err := options.Validate()
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want %q, got %v", tc.want, err)
			}
		})
	}
}

// cluster is the APIs that controllers of a test share.
type cluster struct {
	ichor *fake.Clientset
	kube  *kubefake.Clientset
	// aggregator has Ichor's APIService, or would.
	aggregator *aggregatorfake.Clientset
}

func newCluster() *cluster {
	return &cluster{fake.NewSimpleClientset(), kubefake.NewClientset(), aggregatorfake.NewClientset()}
}

// running is a controller in the background.
type running struct {
	stop  context.CancelFunc
	ended chan error
}

func (c *cluster) start(t *testing.T, change func(*Options)) *running {
	t.Helper()
	options := DefaultOptions()
	options.HealthAddress, options.NodeStreamAddress = "", ""
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = 2*time.Second, time.Second, 50*time.Millisecond
	if change != nil {
		change(&options)
	}
	world := talostest.NewWorld()
	p, err := assembleWith(clients{c.ichor, c.kube, c.aggregator, dynamicfake.NewSimpleDynamicClient(scheme.Scheme), nil}, world, world, options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &running{stop: stop, ended: make(chan error, 1)}
	go func() { r.ended <- p.run(ctx) }()
	t.Cleanup(stop)
	return r
}

func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	select {
	case err := <-r.ended:
		if err != nil {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("didn't end")
	}
}

func (c *cluster) holder(ctx context.Context) string {
	lease, err := c.kube.CoordinationV1().Leases(v1alpha1.SystemNamespace).Get(ctx, component, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func eventually(t *testing.T, what string, look func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) { return look(ctx), nil }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestTheNextReplicaLeadsAtOnceWhenTheLeaderEnds(t *testing.T) {
	t.Parallel()
	c := newCluster()
	first := c.start(t, nil)
	eventually(t, "the first leads", func(ctx context.Context) bool { return c.holder(ctx) != "" })
	leader := c.holder(t.Context())
	second := c.start(t, nil)
	first.end(t)
	eventually(t, "the second leads", func(ctx context.Context) bool {
		holder := c.holder(ctx)
		return holder != "" && holder != leader
	})
	second.end(t)
	if holder := c.holder(t.Context()); holder != "" {
		t.Errorf("the Lease is still held by %s", holder)
	}
}

func TestAReplicaThatWaitsEndsAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster()
	leader := c.start(t, nil)
	eventually(t, "it leads", func(ctx context.Context) bool { return c.holder(ctx) != "" })
	waiting := c.start(t, nil)
	begun := time.Now()
	waiting.end(t)
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it took %s to end", took)
	}
	leader.end(t)
}

// freeAddress is one that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return address
}

// get reads a page of what is served beside the health.
func get(ctx context.Context, address, path string) (int, string) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s%s", address, path), nil)
	if err != nil {
		return 0, err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<22))
	if closeErr := response.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

func TestAloneAndHealthy(t *testing.T) {
	t.Parallel()
	c, address := newCluster(), freeAddress(t)
	r := c.start(t, func(o *Options) { o.HealthAddress, o.LeaderElect = address, false })
	eventually(t, "it is ready", func(ctx context.Context) bool {
		code, _ := get(ctx, address, "/readyz")
		return code == http.StatusOK
	})
	if code, body := get(t.Context(), address, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, body)
	}
	if code, body := get(t.Context(), address, "/metrics"); code != http.StatusOK || !strings.Contains(body, "workqueue_depth") {
		t.Errorf("/metrics: %d, %d bytes", code, len(body))
	}
	if code, _ := get(t.Context(), address, "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("/debug/pprof/: %d though nobody asked for profiles", code)
	}
	r.end(t)
}

func TestProfilesAreServedIfAskedFor(t *testing.T) {
	t.Parallel()
	c, address := newCluster(), freeAddress(t)
	r := c.start(t, func(o *Options) { o.HealthAddress, o.LeaderElect, o.Profiling = address, false, true })
	eventually(t, "it serves a profile of its memory", func(ctx context.Context) bool {
		code, _ := get(ctx, address, "/debug/pprof/heap")
		return code == http.StatusOK
	})
	r.end(t)
}

func TestServingCertificatesAreIssuedBeforeTheAPIIsThere(t *testing.T) {
	t.Parallel()
	for name, wanted := range map[string]bool{"issued": true, "switched off": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, address := newCluster(), freeAddress(t)
			var there atomic.Bool
			c.ichor.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
				if there.Load() {
					return false, nil, nil
				}
				return true, nil, apierrors.NewServiceUnavailable("ichor-apiserver waits for its certificate")
			})
			r := c.start(t, func(o *Options) { o.HealthAddress, o.ServingCertificates = address, wanted })
			eventually(t, "it leads", func(ctx context.Context) bool { return c.holder(ctx) != "" })
			if wanted {
				eventually(t, "a certificate", func(ctx context.Context) bool {
					_, err := c.kube.CoreV1().Secrets(v1alpha1.SystemNamespace).Get(ctx, servingcertificate.SecretName, metav1.GetOptions{})
					return err == nil
				})
			}
			if code, _ := get(t.Context(), address, "/readyz"); code == http.StatusOK {
				t.Error("it is ready without Ichor's API")
			}
			there.Store(true)
			eventually(t, "it is ready", func(ctx context.Context) bool {
				code, _ := get(ctx, address, "/readyz")
				return code == http.StatusOK
			})
			if secrets, err := c.kube.CoreV1().Secrets(v1alpha1.SystemNamespace).List(t.Context(), metav1.ListOptions{}); err != nil || !wanted && len(secrets.Items) > 0 {
				t.Errorf("%d Secrets, %v", len(secrets.Items), err)
			}
			r.end(t)
		})
	}
}
