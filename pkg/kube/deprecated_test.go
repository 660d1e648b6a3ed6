// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

const metrics = `# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs that have been requested
# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group="storage.k8s.io",removed_release="1.37",resource="volumeattributesclasses",subresource="",version="v1beta1"} 1
apiserver_requested_deprecated_apis{group="storage.k8s.io",removed_release="1.37",resource="volumeattributesclasses",subresource="status",version="v1beta1"} 1
apiserver_requested_deprecated_apis{group="",removed_release="",resource="componentstatuses",subresource="",version="v1"} 1
apiserver_requested_deprecated_apis{group="none",removed_release="1.37",resource="asked",subresource="",version="v1beta1"} 0
apiserver_requested_deprecated_apis_more{group="another",resource="metric"} 1
`

func TestWhichDeprecatedAPIsAKubeAPIServerWasAskedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		text   string
		want   []DeprecatedAPI
		words  string
	}{
		"some":               {http.StatusOK, metrics, []DeprecatedAPI{{"storage.k8s.io", "v1beta1", "volumeattributesclasses", "1.37"}, {"", "v1", "componentstatuses", ""}}, ""},
		"none":               {http.StatusOK, "apiserver_request_total{code=\"200\"} 7\n", nil, ""},
		"something else":     {http.StatusOK, "<html>\n", nil, "they aren't those of a kube-apiserver"},
		"nothing":            {http.StatusOK, "", nil, "they aren't those of a kube-apiserver"},
		"not allowed":        {http.StatusForbidden, metrics, nil, "it answers 403 Forbidden"},
		"a line without end": {http.StatusOK, "apiserver_request_total " + strings.Repeat("1", maxMetricsLine+1), nil, "token too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/metrics" || r.Header.Get("Authorization") != "Bearer token" {
					w.WriteHeader(http.StatusNotFound)
					return
				}
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.text))
			}))
			defer server.Close()
			authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			asker := APIServers{&rest.Config{Host: "https://elsewhere.invalid", BearerToken: "token", TLSClientConfig: rest.TLSClientConfig{CAData: authority}}}
			got, err := asker.DeprecatedAPIs(t.Context(), server.Listener.Addr().String())
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("API versions (-want +got):\n%s", diff)
			}
			if c.words == "" && err != nil || c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)) {
				t.Errorf("error %v, want %q", err, c.words)
			}
			if _, err := (APIServers{&rest.Config{BearerToken: "token"}}).DeprecatedAPIs(t.Context(), server.Listener.Addr().String()); err == nil {
				t.Error("a server of an unknown authority was believed")
			}
		})
	}
}
