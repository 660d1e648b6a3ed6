// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericrest "k8s.io/apiserver/pkg/registry/generic/rest"

	"maesh.dev/ichor/pkg/apis/ichor"
)

func TestWhatCanBeAskedOfLogs(t *testing.T) {
	t.Parallel()
	lines := func(n int64) *int64 { return &n }
	for name, tc := range map[string]struct {
		options ichor.TalosMachineLogOptions
		want    []string
	}{
		"a service":                          {ichor.TalosMachineLogOptions{Service: "kubelet"}, nil},
		"an extension's service":             {ichor.TalosMachineLogOptions{Service: "ext-iscsid", Follow: true, TailLines: lines(10)}, nil},
		"the kernel":                         {ichor.TalosMachineLogOptions{Kernel: true, TailLines: lines(100)}, nil},
		"the kernel from now on":             {ichor.TalosMachineLogOptions{Kernel: true, Follow: true, TailLines: lines(0)}, nil},
		"nothing":                            {ichor.TalosMachineLogOptions{}, []string{"service: Required"}},
		"both":                               {ichor.TalosMachineLogOptions{Kernel: true, Service: "kubelet"}, []string{"service: Invalid"}},
		"a path":                             {ichor.TalosMachineLogOptions{Service: "../../etc"}, []string{"service: Invalid"}},
		"a long name":                        {ichor.TalosMachineLogOptions{Service: strings.Repeat("a", 129)}, []string{"service: Invalid"}},
		"less than nothing of what isn't it": {ichor.TalosMachineLogOptions{Service: "A B", TailLines: lines(-1)}, []string{"service: Invalid", "tailLines: Invalid"}},
		"more than a machine can count":      {ichor.TalosMachineLogOptions{Service: "kubelet", TailLines: lines(1 << 40)}, []string{"tailLines: Invalid"}},
		"the kernel's last lines, followed":  {ichor.TalosMachineLogOptions{Kernel: true, Follow: true, TailLines: lines(5)}, []string{"tailLines: Invalid"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs := validateLogOptions(&tc.options)
			if len(errs) != len(tc.want) {
				t.Fatalf("got %v, want %v", errs, tc.want)
			}
			for i, want := range tc.want {
				if !strings.HasPrefix(errs[i].Error(), want) {
					t.Errorf("got %q, want %q", errs[i], want)
				}
			}
		})
	}
}

// open reads from a controller that answers in some way.
func open(t *testing.T, answer http.HandlerFunc) (io.ReadCloser, error) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	from := &stream{query: queryOf(&ichor.TalosMachineLogOptions{Service: "kubelet", Follow: true})}
	from.LocationStreamer = genericrest.LocationStreamer{Location: at, Transport: server.Client().Transport, ResponseChecker: statusChecker{}, RedirectChecker: genericrest.PreventRedirects}
	reader, _, _, err := from.InputStream(t.Context(), "", "")
	return reader, err
}

func TestALogIsPassedOn(t *testing.T) {
	t.Parallel()
	reader, err := open(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Encode(); got != "follow=true&service=kubelet" {
			t.Errorf("asked for %q", got)
		}
		_, _ = io.WriteString(w, "hello\n")
	})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close() //nolint:errcheck // it was read to its end
	if text, err := io.ReadAll(reader); err != nil || string(text) != "hello\n" {
		t.Errorf("got %q, %v", text, err)
	}
}

// Whatever the controller answers, it is never a 500 of this server's.
func TestALogThatTheControllerDoesntHave(t *testing.T) {
	t.Parallel()
	status := func(err *apierrors.StatusError) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(int(err.ErrStatus.Code))
			_ = json.NewEncoder(w).Encode(err.ErrStatus)
		}
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   metav1.StatusReason
		words  string
	}{
		"because there is no such service": {status(apierrors.NewNotFound(ichor.Resource("talosmachines/log"), "m")), metav1.StatusReasonNotFound, "m"},
		"because the machine is off":       {status(apierrors.NewServiceUnavailable("machine m doesn't answer")), metav1.StatusReasonServiceUnavailable, "doesn't answer"},
		"in words of its own":              {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "boom", http.StatusInternalServerError) }, metav1.StatusReasonServiceUnavailable, "500"},
		"with a success that is none": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, "{}")
		}, metav1.StatusReasonServiceUnavailable, "202"},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		}, metav1.StatusReasonServiceUnavailable, "redirects"},
		"at all": {func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, metav1.StatusReasonServiceUnavailable, "can't be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reader, err := open(t, tc.answer)
			if reader != nil {
				_ = reader.Close()
			}
			if apierrors.ReasonForError(err) != tc.want || !strings.Contains(err.Error(), tc.words) {
				t.Errorf("got %v, want %s with %q", err, tc.want, tc.words)
			}
		})
	}
}
