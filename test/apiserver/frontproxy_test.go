// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/apiserver/harness"
)

// TestTheFrontProxysAuthorityRotates goes through a rotation as a kube-apiserver's administrator does: both authorities,
// then the new one alone. All through it somebody tries to be another user, and the server isn't started again.
func TestTheFrontProxysAuthorityRotates(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 1), testContext(t)
	next := harness.NewFrontProxyCA(t)
	through := func(config *rest.Config) *versioned.Clientset {
		client, err := versioned.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	before := through(w.ProxyConfig(t, 0, "front-proxy", harness.Approver))
	after := through(w.ProxyConfigOf(t, next, 0, "front-proxy", harness.Approver))
	list := func(client *versioned.Clientset) error {
		_, err := client.IchorV1alpha1().TalosMachines().List(ctx, metav1.ListOptions{})
		return err
	}
	refused := func(err error) bool { return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) }

	forged := startForging(t, ctx, map[string]*versioned.Clientset{
		"no certificate":                                through(withoutCertificate(w)),
		"a certificate of the client CA":                through(w.ProxyConfigOf(t, w.ClientCA(), 0, "front-proxy", harness.Approver)),
		"a certificate of a CA that nobody knows":       through(w.ProxyConfigOf(t, harness.NewFrontProxyCA(t), 0, "front-proxy", harness.Approver)),
		"the old authority's, but not the proxy's name": through(w.ProxyConfig(t, 0, "somebody", harness.Approver)),
		"the new authority's, but not the proxy's name": through(w.ProxyConfigOf(t, next, 0, "somebody", harness.Approver)),
	}, list)

	if err := list(before); err != nil {
		t.Fatalf("before the rotation: %v", err)
	}
	if err := list(after); !refused(err) {
		t.Fatalf("an authority that isn't listed yet: %v, want a refusal", err)
	}
	w.Kube.Trust(func(data map[string]string) { data[proxyCA] += next.PEM() })
	eventually(t, "the new authority is accepted", func() bool { return list(after) == nil })
	if err := list(before); err != nil {
		t.Errorf("the old authority while both are listed: %v", err)
	}
	w.Kube.Trust(func(data map[string]string) { data[proxyCA] = next.PEM() })
	// The connection is the one that was trusted until now.
	eventually(t, "the old authority is refused", func() bool { return refused(list(before)) })
	if err := list(after); err != nil {
		t.Errorf("the new authority alone: %v", err)
	}
	forged.end(t)
}

// withoutCertificate names a user in the headers and has nothing that vouches for it.
func withoutCertificate(w *world) *rest.Config {
	config := w.Config(0, "")
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport.NewAuthProxyRoundTripper(harness.Approver, "", []string{"system:masters"}, nil, next)
	})
	return config
}

// forging is somebody who tries again and again.
type forging struct {
	stop  context.CancelFunc
	group sync.WaitGroup
	// clients are who tries, by what they have to show.
	clients map[string]*versioned.Clientset
	mu      sync.Mutex
	tries   map[string]int
	// through are the attempts that weren't refused.
	through []string
}

func startForging(t *testing.T, ctx context.Context, clients map[string]*versioned.Clientset, try func(*versioned.Clientset) error) *forging {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	f := &forging{stop: cancel, clients: clients, tries: map[string]int{}}
	t.Cleanup(func() { cancel(); f.group.Wait() })
	for name, client := range clients {
		f.group.Go(func() {
			ticker := time.NewTicker(20 * time.Millisecond)
			defer ticker.Stop()
			for ctx.Err() == nil {
				err := try(client)
				f.mu.Lock()
				f.tries[name]++
				if !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
					f.through = append(f.through, name)
				}
				f.mu.Unlock()
				select {
				case <-ctx.Done():
				case <-ticker.C:
				}
			}
		})
	}
	return f
}

// end waits until each has tried once more at what is there now, and fails if anybody was ever let in.
func (f *forging) end(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	before := maps.Clone(f.tries)
	f.mu.Unlock()
	eventually(t, "everybody has tried again", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for name := range f.clients {
			if f.tries[name] < before[name]+2 { // one may have been on its way
				return false
			}
		}
		return true
	})
	f.stop()
	f.group.Wait()
	if len(f.through) > 0 {
		t.Errorf("not refused: %v", f.through)
	}
}
