// SPDX-License-Identifier: Apache-2.0

package killer

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"maesh.dev/ichor/pkg/talos"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// opened is a killer that only says what it would kill at.
func opened(t *testing.T, o Options) (*Killer, func() []string) {
	t.Helper()
	o.Journal = filepath.Join(t.TempDir(), "kills")
	k, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.file.Close() })
	k.end = func(string) {}
	return k, func() []string {
		keys, err := Read(o.Journal)
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
}

func TestAWriteKillsOnceEvenInTheNextProcess(t *testing.T) {
	t.Parallel()
	w := Write{Act: "create secrets", Object: "bundle"}
	k, keys := opened(t, Options{})
	k.At(Answered, w)
	k.At(Answered, w)
	next, err := Open(k.options)
	if err != nil {
		t.Fatal(err)
	}
	defer next.file.Close() //nolint:errcheck // nothing was written
	next.end = func(key string) { t.Errorf("killed again at %q", key) }
	next.At(Answered, w)
	if diff := cmp.Diff([]string{"answered create secrets bundle"}, keys()); diff != "" {
		t.Error(diff)
	}
}

func TestRequestsKillWhenAnsweredOrOnTheWay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		swap bool
		want []string
	}{
		"when answered, with a yes": {want: []string{"answered update secrets taken"}},
		"on the way":                {swap: true, want: []string{"unanswered update secrets taken", "unanswered update secrets refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if path.Base(r.URL.Path) == "refused" {
					w.WriteHeader(http.StatusConflict)
				}
			}))
			defer server.Close()
			k, keys := opened(t, Options{Swap: tc.swap})
			client := &http.Client{Transport: k.Transport(&http.Transport{DisableKeepAlives: true})}
			for _, each := range []struct{ method, name string }{{http.MethodGet, "read"}, {http.MethodPut, "taken"}, {http.MethodPut, "refused"}} {
				r := request(t, each.method, "/api/v1/namespaces/system/secrets/"+each.name, []byte(`{}`))
				var err error
				if r.URL, err = r.URL.Parse(server.URL + r.URL.Path); err != nil {
					t.Fatal(err)
				}
				response, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
			}
			if diff := cmp.Diff(tc.want, keys()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// oneNode answers every call that changes a machine.
type oneNode struct {
	talos.ConfiguredNode
	refusal error
}

func (n *oneNode) DialMaintenance(context.Context, netip.Addr, talos.Fingerprint) (talos.MaintenanceNode, error) {
	return n, nil
}

func (n *oneNode) DialConfigured(context.Context, netip.Addr, talos.Credentials) (talos.ConfiguredNode, error) {
	return n, nil
}

func (n *oneNode) ApplyConfiguration(context.Context, []byte, talos.ApplyMode) (talos.ApplyResult, error) {
	return talos.ApplyResult{}, n.refusal
}
func (n *oneNode) Bootstrap(context.Context) error                 { return n.refusal }
func (n *oneNode) EtcdRemoveMember(context.Context, uint64) error  { return n.refusal }
func (n *oneNode) Reset(context.Context, talos.ResetOptions) error { return n.refusal }

func TestCallsOfMachinesKill(t *testing.T) {
	t.Parallel()
	even, odd := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")
	for name, tc := range map[string]struct {
		refusal error
		unsent  bool
		want    []string
	}{
		"on the way at one machine and answered at the next": {want: []string{
			"unanswered first ApplyConfiguration 127.0.0.3", "answered later ApplyConfiguration 127.0.0.2", "unanswered Bootstrap 127.0.0.3",
			"answered EtcdRemoveMember 127.0.0.2", "unanswered Reset 127.0.0.3",
		}},
		"not when refused": {refusal: errors.New("no")},
		"before it is sent, where that is asked for": {refusal: errors.New("no"), unsent: true, want: []string{
			"unsent first ApplyConfiguration 127.0.0.3", "unsent later ApplyConfiguration 127.0.0.2", "unsent Bootstrap 127.0.0.3",
			"unsent EtcdRemoveMember 127.0.0.2", "unsent Reset 127.0.0.3",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, keys := opened(t, Options{Unsent: tc.unsent})
			dialer, ctx := k.Dialer(&oneNode{refusal: tc.refusal}), t.Context()
			waiting, err := dialer.DialMaintenance(ctx, odd, "")
			if err != nil {
				t.Fatal(err)
			}
			two, err := dialer.DialConfigured(ctx, even, talos.Credentials{})
			if err != nil {
				t.Fatal(err)
			}
			three, err := dialer.DialConfigured(ctx, odd, talos.Credentials{})
			if err != nil {
				t.Fatal(err)
			}
			_, first := waiting.ApplyConfiguration(ctx, nil, talos.ApplyAuto)
			_, later := two.ApplyConfiguration(ctx, nil, talos.ApplyAuto)
			for _, err := range []error{
				first, later, three.Bootstrap(ctx), two.EtcdRemoveMember(ctx, 1),
				three.(interface {
					Reset(ctx context.Context, options talos.ResetOptions) error
				}).Reset(ctx, talos.ResetOptions{Graceful: true}),
			} {
				if !errors.Is(err, tc.refusal) {
					t.Errorf("the caller was told %v, want %v", err, tc.refusal)
				}
			}
			if diff := cmp.Diff(tc.want, keys()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
