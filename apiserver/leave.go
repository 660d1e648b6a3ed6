// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
)

// leaving asks clients to leave a server that is about to end, while it still serves them.
//
// A balancer that has noticed that the server isn't ready sends it no new connections, but those that are there stay: a
// kube-apiserver carries all requests of all its users over one. The library closes them when the delay is over, and
// refuses whatever arrives on them in that moment with a 503. So in the second half of the delay every answer says that
// the connection ends with it (HTTP/2: GOAWAY): the next request goes to another replica, and none is refused. A watch has
// been answered long ago, and its connection may carry nothing else: it is ended, as the server may end any watch at any
// time, and begins anew with an answer that says so.
// Source: k8s.io/apiserver, pkg/server/genericapiserver.go and pkg/server/filters/{waitgroup,goaway}.go.
type leaving struct {
	now atomic.Bool
	// begun ends when clients are asked to leave.
	begun context.Context
	begin context.CancelFunc
}

func newLeaving() *leaving {
	l := &leaving{}
	l.begun, l.begin = context.WithCancel(context.Background())
	return l
}

// addLeaving watches for the end of the server.
func addLeaving(config *genericapiserver.Config) (*leaving, error) {
	l := newLeaving()
	initiated, after := config.ShutdownInitiatedNotify(), config.ShutdownDelayDuration/2
	err := config.AddPostStartHook("ichor-leave", func(hook genericapiserver.PostStartHookContext) error {
		go l.watch(hook, initiated, after)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("watch for the end of the server: %w", err)
	}
	return l, nil
}

// watch waits for the end to be announced, and then for as long as balancers may take to notice. ctx ends when no request
// is taken any more.
func (l *leaving) watch(ctx context.Context, initiated <-chan struct{}, after time.Duration) {
	select {
	case <-initiated:
	case <-ctx.Done():
		return
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
		l.now.Store(true)
		l.begin()
	case <-ctx.Done():
	}
}

// with ends the connection of each request that is answered while the server is left.
func (l *leaving) with(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if l.now.Load() {
			w.Header().Set("Connection", "close")
		} else if isWatch(req) {
			ctx, end := context.WithCancel(req.Context())
			defer end()
			defer context.AfterFunc(l.begun, end)()
			req = req.WithContext(ctx)
		}
		handler.ServeHTTP(w, req)
	})
}

// isWatch tells whether a request watches. Source: k8s.io/apiserver, pkg/endpoints/request/requestinfo.go.
func isWatch(req *http.Request) bool {
	switch req.URL.Query().Get("watch") {
	case "", "0", "false":
		return false
	}
	return req.Method == http.MethodGet
}
