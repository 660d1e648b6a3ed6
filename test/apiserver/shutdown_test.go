// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/apiserver/harness"
	"maesh.dev/ichor/test/localstack/balancer"
)

const (
	// drainDelay is --shutdown-delay-duration of the servers, longer than the balancer needs on a busy machine.
	drainDelay = 8 * time.Second
	// drainWatches is --shutdown-watch-termination-grace-period.
	drainWatches = 2 * time.Second
	// balanceEvery is the time between two looks of the balancer.
	balanceEvery = 100 * time.Millisecond
)

// TestReplicasAreReplacedUnderLoad ends each replica as a rollout does, and starts another in its place, while clients
// read, write and watch through a balancer that asks for readiness. None of their requests fails.
func TestReplicasAreReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	const replicas = 2
	w := newWorld(t, 1, 2)
	fleet := startFleet(t, w, replicas)
	load := startDrainLoad(t, fleet)
	for n := range replicas {
		fleet.replace(t, n)
	}
	load.end(t)
}

// fleet is servers behind a balancer. Each has an address of its own, also the ones that come later.
type fleet struct {
	env      *harness.Env
	balancer *balancer.Balancer
	waiting  []net.Listener
	// serving are the servers by address.
	mu      sync.Mutex
	serving map[string]int
	order   []string
}

func startFleet(t *testing.T, w *world, replicas int) *fleet {
	t.Helper()
	f := &fleet{env: w.Env, serving: map[string]int{}}
	var backends []string
	for range 2 * replicas {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() }) // one that a server took is closed already
		f.waiting = append(f.waiting, listener)
		backends = append(backends, listener.Addr().String())
	}
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.balancer = balancer.Start(front, balancer.Config{
		Name: "test", Backends: backends, Check: f.ready, Interval: balanceEvery, Drain: true, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(f.balancer.Close)
	for range replicas {
		f.add(t)
	}
	return f
}

// ready is the balancer's question.
func (f *fleet) ready(ctx context.Context, address string) error {
	f.mu.Lock()
	server, serves := f.serving[address]
	f.mu.Unlock()
	if !serves {
		return errors.New("nobody serves there")
	}
	config := f.env.Config(server, "")
	config.Proxy = http.ProxyFromEnvironment // a connection for each question
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// add starts a server and waits until the balancer sends it connections.
func (f *fleet) add(t *testing.T) {
	t.Helper()
	listener := f.waiting[0]
	f.waiting = f.waiting[1:]
	options := f.env.Options(t)
	options.Recommended.SecureServing.Listener.Close()
	options.Recommended.SecureServing.Listener = listener
	options.Run.ShutdownDelayDuration, options.Run.ShutdownWatchTerminationGracePeriod = drainDelay, drainWatches
	server := f.env.Serve(t, options, harness.Run)
	address := listener.Addr().String()
	f.mu.Lock()
	f.serving[address] = server
	f.order = append(f.order, address)
	f.mu.Unlock()
	eventually(t, "the balancer uses "+address, func() bool { return slices.Contains(f.balancer.Healthy(), address) })
}

// replace ends the nth server as SIGTERM does, and starts another once it has ended.
func (f *fleet) replace(t *testing.T, n int) {
	t.Helper()
	address := f.order[n]
	ended := make(chan error, 1)
	go func() { ended <- f.env.Stop(f.serving[address]) }()
	begin := time.Now()
	eventually(t, "the balancer leaves "+address, func() bool { return !slices.Contains(f.balancer.Healthy(), address) })
	left := time.Since(begin)
	if err := <-ended; err != nil {
		t.Errorf("end of a server: %v", err)
	}
	t.Logf("server %d: without new connections after %s, ended after %s", n+1, left, time.Since(begin))
	if left >= drainDelay {
		t.Errorf("readiness was told after %s only; requests were refused before that", left)
	}
	f.add(t)
}

// drainLoad is clients through a balancer.
type drainLoad struct {
	stop     context.CancelFunc
	group    sync.WaitGroup
	requests atomic.Int64
	mu       sync.Mutex
	faults   []string
	// written and seen are the last revisions of each machine.
	written, seen map[string]string
	watches       int
}

// strict notes every answer that isn't a success, before a client library tries again.
type strict struct {
	next http.RoundTripper
	load *drainLoad
}

// RoundTrip does one request.
func (r strict) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	r.load.requests.Add(1)
	switch {
	case request.Context().Err() != nil:
	case err != nil:
		r.load.fault("%s %s: %v", request.Method, request.URL, err)
	case response.StatusCode >= http.StatusBadRequest:
		body, _ := io.ReadAll(io.LimitReader(response.Body, 1024)) // what can be read of it is enough
		_ = response.Body.Close()
		response.Body = io.NopCloser(bytes.NewReader(body))
		r.load.fault("%s %s: %s: %s", request.Method, request.URL, response.Status, body)
	}
	return response, err
}

func (l *drainLoad) fault(format string, arguments ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) < 20 {
		l.faults = append(l.faults, time.Now().Format("05.000")+" "+fmt.Sprintf(format, arguments...))
	}
}

// client has connections of its own through the balancer.
func (f *fleet) client(t *testing.T, l *drainLoad) *versioned.Clientset {
	t.Helper()
	config := f.env.Config(0, harness.Admin)
	config.Host = "https://" + f.balancer.Addr().String()
	config.Proxy = http.ProxyFromEnvironment
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return strict{next, l} })
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func startDrainLoad(t *testing.T, f *fleet) *drainLoad {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &drainLoad{stop: cancel, written: map[string]string{}, seen: map[string]string{}}
	t.Cleanup(func() { cancel(); l.group.Wait() })
	for n := range 4 {
		name, reader, writer, watcher := machineUUID(n%2), f.client(t, l), f.client(t, l), f.client(t, l)
		l.repeat(ctx, func(int) error {
			_, err := reader.IchorV1alpha1().TalosMachines().Get(ctx, name, metav1.GetOptions{})
			return err
		})
		l.repeat(ctx, func(turn int) error {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"load-%d":"%d"}}}`, n, turn)
			written, err := writer.IchorV1alpha1().TalosMachines().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			if err == nil {
				l.mu.Lock()
				l.written[name] = written.ResourceVersion
				l.mu.Unlock()
			}
			return err
		})
		if n == 0 {
			l.group.Go(func() { l.follow(ctx, watcher) })
		}
	}
	return l
}

func (l *drainLoad) repeat(ctx context.Context, do func(turn int) error) {
	l.group.Go(func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for turn := 0; ctx.Err() == nil; turn++ {
			if err := do(turn); err != nil && ctx.Err() == nil {
				l.fault("%v", err)
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
}

// follow watches as informers do: a watch that ends without an error is resumed where it was.
func (l *drainLoad) follow(ctx context.Context, client *versioned.Clientset) {
	machines := client.IchorV1alpha1().TalosMachines()
	list, err := machines.List(ctx, metav1.ListOptions{})
	if err != nil {
		l.fault("list before the watch: %v", err)
		return
	}
	resumed, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			l.mu.Lock()
			l.watches++
			l.mu.Unlock()
			return machines.Watch(ctx, options)
		},
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return machines.List(ctx, options)
		},
	})
	if err != nil {
		l.fault("watch: %v", err)
		return
	}
	defer resumed.Stop()
	for event := range resumed.ResultChan() {
		m, ok := event.Object.(*v1alpha1.TalosMachine)
		if !ok {
			l.fault("the watch tells of %+v", event.Object)
			return
		}
		l.mu.Lock()
		l.seen[m.Name] = m.ResourceVersion
		l.mu.Unlock()
	}
}

// end waits until the watch has seen what was written last.
func (l *drainLoad) end(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	last := fmt.Sprint(l.written)
	l.mu.Unlock()
	eventually(t, "the watch goes on after "+last, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for name, revision := range l.written {
			if later, err := compare(l.seen[name], revision); err != nil || later < -200 {
				return false
			}
		}
		return len(l.written) == 2
	})
	l.stop()
	l.group.Wait()
	t.Logf("%d requests, %d watches", l.requests.Load(), l.watches)
	if l.watches < 2 {
		t.Errorf("%d watches: none was resumed, so no server that was ended had one", l.watches)
	}
	for _, fault := range l.faults {
		t.Error(fault)
	}
}

func compare(a, b string) (difference int, err error) {
	var x, y int
	if _, err := fmt.Sscan(a+" "+b, &x, &y); err != nil {
		return 0, err
	}
	return x - y, nil
}
