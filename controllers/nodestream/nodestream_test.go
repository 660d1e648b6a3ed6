// SPDX-License-Identifier: Apache-2.0

package nodestream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned/fake"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type credentials struct{ err error }

func (c credentials) CredentialsFor(context.Context, string) (talos.Credentials, error) {
	return talos.Credentials{}, c.err
}

func ask(t *testing.T, machine *v1alpha1.TalosMachine, node *talostest.Machine, access credentials, path string) (code int, body string) {
	t.Helper()
	world := talostest.NewWorld()
	world.Put(netip.MustParseAddr("10.0.0.1").String(), node)
	server := httptest.NewServer(NewHandler(fake.NewClientset(machine).IchorV1alpha1(), access, world))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it is read to its end
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func configured() (*v1alpha1.TalosMachine, *talostest.Machine) {
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	m.Spec.ApprovalState, m.Spec.ClusterRef.Name = v1alpha1.ApprovalApproved, "prod"
	m.Spec.Identity = v1alpha1.MachineIdentity{UUID: "4c4c4544-0051-3610-8052-b4c04f4c3101", SerialNumber: "S1", MACAddresses: []string{"02:00:5e:00:53:01"}}
	now := metav1.Now()
	m.Status.Provisioning = &v1alpha1.ProvisioningStatus{IntendedAt: &now}
	m.Status.Addresses = []string{"10.0.0.1"}
	node := talostest.NewMachine(talostest.State{Mode: talostest.Configured, Facts: talos.Facts{Identity: m.Spec.Identity}, Logs: map[string]string{
		"kubelet": "one\ntwo\nthree\n", "": "k1\nk2\nk3\n", "silent": "",
	}})
	return m, node
}

func TestLogsOfAMachine(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		query, want string
		code        int
	}{
		"all of a service":               {"service=kubelet", "one\ntwo\nthree\n", http.StatusOK},
		"its last lines":                 {"service=kubelet&tailLines=2", "two\nthree\n", http.StatusOK},
		"a service without a word":       {"service=silent", "", http.StatusOK},
		"all of the kernel":              {"kernel=true", "k1\nk2\nk3\n", http.StatusOK},
		"the kernel's last lines":        {"kernel=true&tailLines=2", "k2\nk3\n", http.StatusOK},
		"more than the kernel's lines":   {"kernel=true&tailLines=9", "k1\nk2\nk3\n", http.StatusOK},
		"none of the kernel's":           {"kernel=true&tailLines=0", "", http.StatusOK},
		"a service that isn't there":     {"service=nonsense", `no service \"nonsense\"`, http.StatusNotFound},
		"nothing":                        {"", "either service or kernel", http.StatusBadRequest},
		"a number of lines that is none": {"service=kubelet&tailLines=-3", "tailLines", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, node := configured()
			code, body := ask(t, m, node, credentials{}, "/machines/m/log?"+tc.query)
			if code != tc.code || code == http.StatusOK && body != tc.want || !strings.Contains(body, tc.want) {
				t.Errorf("want %d with %q, got %d with %q", tc.code, tc.want, code, body)
			}
		})
	}
}

func TestALogThatCantBeRead(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		machine func(*v1alpha1.TalosMachine)
		node    func(*talostest.State)
		access  error
		path    string
		code    int32
		words   string
	}{
		"of a machine that isn't there":        {path: "/machines/other/log?kernel=true", code: http.StatusNotFound, words: "other"},
		"of a machine that waits":              {machine: func(m *v1alpha1.TalosMachine) { m.Spec.ApprovalState = v1alpha1.ApprovalPending }, code: http.StatusConflict, words: "no configuration"},
		"of a machine without a configuration": {machine: func(m *v1alpha1.TalosMachine) { m.Status.Provisioning = nil }, code: http.StatusConflict, words: "no configuration"},
		"of a machine that is off":             {node: func(s *talostest.State) { s.Mode = talostest.Off }, code: http.StatusServiceUnavailable, words: "doesn't answer"},
		"of another machine at its address":    {node: func(s *talostest.State) { s.Facts.Identity.UUID = "4c4c4544-0051-3610-8052-b4c04f4c3199" }, code: http.StatusServiceUnavailable, words: "another machine answers"},
		"without the cluster's secrets":        {access: errors.New("secrets bundle is missing"), code: http.StatusServiceUnavailable, words: "no access to machine m of cluster prod: secrets bundle is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, node := configured()
			if tc.machine != nil {
				tc.machine(m)
			}
			if tc.node != nil {
				node.Do(tc.node)
			}
			path := tc.path
			if path == "" {
				path = "/machines/m/log?kernel=true"
			}
			code, body := ask(t, m, node, credentials{tc.access}, path)
			var status metav1.Status
			if err := json.Unmarshal([]byte(body), &status); err != nil {
				t.Fatalf("%d %q: %v", code, body, err)
			}
			if int32(code) != tc.code || status.Code != tc.code || !strings.Contains(status.Message, tc.words) { //nolint:gosec // HTTP's codes
				t.Errorf("want %d with %q, got %d: %+v", tc.code, tc.words, code, status)
			}
		})
	}
}

// A reader that goes away ends the reading on the machine.
func TestALogThatIsFollowedEndsWithItsReader(t *testing.T) {
	t.Parallel()
	m, node := configured()
	world := talostest.NewWorld()
	world.Put("10.0.0.1", node)
	handler := NewHandler(fake.NewClientset(m).IchorV1alpha1(), credentials{}, world)
	server := httptest.NewServer(handler)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/machines/m/log?service=kubelet&follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // its end is what is tested
	begin := make([]byte, len("one\ntwo\nthree\n"))
	if _, err := io.ReadFull(response.Body, begin); err != nil || string(begin) != "one\ntwo\nthree\n" {
		t.Fatalf("got %q, %v", begin, err)
	}
	if len(handler.places) != 1 {
		t.Errorf("%d logs are being read", len(handler.places))
	}
	cancel() // the server's Close waits for the handler to end
}

func TestNoMoreLogsAreReadThanMayBe(t *testing.T) {
	t.Parallel()
	m, node := configured()
	world := talostest.NewWorld()
	world.Put("10.0.0.1", node)
	handler := NewHandler(fake.NewClientset(m).IchorV1alpha1(), credentials{}, world)
	for range cap(handler.places) {
		handler.places <- struct{}{}
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/machines/m/log?kernel=true", nil))
	if answer.Code != http.StatusTooManyRequests {
		t.Errorf("got %d: %s", answer.Code, answer.Body)
	}
}
