// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestClientsAreAskedToLeaveOnceBalancersHaveNoticed(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	close(closed)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx       context.Context
		initiated chan struct{}
		after     time.Duration
		want      string
	}{
		"the delay is half over":         {t.Context(), closed, time.Millisecond, "close"},
		"no delay: nobody balances":      {over, make(chan struct{}), 0, ""},
		"it ended before that was due":   {over, closed, time.Hour, ""},
		"it ended without being told to": {over, make(chan struct{}), time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLeaving()
			l.watch(tc.ctx, tc.initiated, tc.after)
			answer := httptest.NewRecorder()
			l.with(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })).
				ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
			if got := answer.Result().Header.Get("Connection"); got != tc.want {
				t.Errorf("Connection: %q, want %q", got, tc.want)
			}
		})
	}
}

// A watch may be all that its connection carries, and was answered before anybody was to leave.
func TestWatchesEndWhenClientsAreAskedToLeave(t *testing.T) {
	t.Parallel()
	for path, ends := range map[string]bool{"/machines?watch=true": true, "/machines?watch=1": true, "/machines?watch=false": false, "/machines": false} {
		l := newLeaving()
		handler := l.with(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			l.begin()
			select {
			case <-req.Context().Done():
				if !ends {
					t.Errorf("%s was ended", path)
				}
			case <-time.After(map[bool]time.Duration{true: time.Minute, false: 10 * time.Millisecond}[ends]):
				if ends {
					t.Errorf("%s went on", path)
				}
			}
		}))
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
	}
}
