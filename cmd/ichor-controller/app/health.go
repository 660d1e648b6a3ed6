// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	// Requests to the Kubernetes API and the queues of the controllers are measured.
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
	"k8s.io/klog/v2"
)

// health serves /healthz, /readyz and /metrics, and profiles if they are wanted.
type health struct {
	server *http.Server
	done   chan struct{}
}

// listen begins to serve; without an address there is nothing to serve.
func listen(address string, ready func() error, profiling bool) (*health, error) {
	if address == "" {
		return &health{}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve health at %s: %w", address, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.Handle("/metrics", legacyregistry.Handler())
	if profiling {
		serveProfiles(mux)
	}
	h := &health{
		server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10},
		done:   make(chan struct{}),
	}
	go func() {
		defer close(h.done)
		if err := h.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.Background().Error(err, "controller: health is not served any more")
		}
	}()
	return h, nil
}

// serveProfiles adds what `go tool pprof` asks for, at the paths of Kubernetes' components.
func serveProfiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

func (h *health) close() {
	if h.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := h.server.Shutdown(ctx); err != nil {
		_ = h.server.Close()
	}
	<-h.done
}
