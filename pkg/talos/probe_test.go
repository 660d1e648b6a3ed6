// SPDX-License-Identifier: Apache-2.0

package talos_test

import (
	"crypto/tls"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// quick are deadlines short enough for tests, and their sum with room for a busy machine.
var quick = talos.ProbeOptions{
	ConnectTimeout: time.Second, HandshakeTimeout: time.Second, FirstByteTimeout: time.Second, ConfirmTimeout: 5 * time.Second,
}

const quickBound = 15 * time.Second

func probe(t *testing.T, port uint16) talos.Probe {
	t.Helper()
	options := quick
	options.Port = port
	begin := time.Now()
	got := talos.NewProber(options).Probe(t.Context(), loopback)
	if took := time.Since(begin); took > quickBound {
		t.Errorf("the probe took %s, its deadlines add up to 8s", took)
	}
	return got
}

func TestProbe(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "talos")
	foreign := newAuthority(t, "acme")
	some := foreign.server(t, "web-1")
	maintenance := newAuthority(t, "").server(t, maintenanceName)
	h2 := []string{"h2"}

	for name, tc := range map[string]struct {
		port  func(*testing.T) uint16
		class v1alpha1.HostClass
		words string
	}{
		"a machine in maintenance mode": {
			func(t *testing.T) uint16 { return startNode(t, maintenance, nil, nil).port },
			v1alpha1.HostMaintenance, "a Talos machine in maintenance mode",
		},
		"a machine in maintenance mode with an unusual certificate": {
			func(t *testing.T) uint16 { return startNode(t, some, nil, nil).port },
			v1alpha1.HostMaintenance, "a Talos machine that answers without a client certificate",
		},
		"a configured machine": {
			func(t *testing.T) uint16 { return startNode(t, ca.server(t, "cp-1"), &ca, nil).port },
			v1alpha1.HostAlreadyConfigured, "a configured Talos machine",
		},
		"a configured machine of a cluster with an authority of its own": {
			func(t *testing.T) uint16 { return startNode(t, foreign.server(t, "cp-1"), &foreign, nil).port },
			v1alpha1.HostAlreadyConfigured, "a server that demands a client certificate, as a configured Talos machine does",
		},
		"nothing": {refusedPort, v1alpha1.HostUnreachable, "connection refused"},
		"an SSH server": {
			func(t *testing.T) uint16 { return serve(t, say("SSH-2.0-OpenSSH_9.9\r\n")) },
			v1alpha1.HostNotTalos, "an SSH server",
		},
		"a plain HTTP server": {
			func(t *testing.T) uint16 { return serveHTTP(t, nil) },
			v1alpha1.HostNotTalos, "an HTTP server without TLS",
		},
		"TLS without HTTP/2": {
			func(t *testing.T) uint16 { return serve(t, overTLS13(some, nil, hang)) },
			v1alpha1.HostNotTalos, "TLS without HTTP/2",
		},
		"TLS with another protocol": {
			func(t *testing.T) uint16 { return serve(t, overTLS13(some, []string{"http/1.1"}, hang)) },
			v1alpha1.HostNotTalos, "TLS without HTTP/2",
		},
		"TLS 1.2": {
			func(t *testing.T) uint16 {
				return serveHTTP(t, &tls.Config{MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{some}})
			},
			v1alpha1.HostNotTalos, "a TLS server without TLS 1.3",
		},
		"an HTTPS server with HTTP/2": {
			func(t *testing.T) uint16 {
				return serveHTTP(t, &tls.Config{Certificates: []tls.Certificate{some}, NextProtos: h2})
			},
			v1alpha1.HostNotTalos, "an HTTPS server",
		},
		"a gRPC server that isn't Talos": {
			func(t *testing.T) uint16 { return otherService(t, some) },
			v1alpha1.HostNotTalos, "a gRPC server that isn't Talos",
		},
		"a peer that hangs in the handshake": {
			func(t *testing.T) uint16 { return serve(t, hang) },
			v1alpha1.HostNotTalos, "a server that doesn't finish the TLS handshake",
		},
		"a peer that hangs after the handshake": {
			func(t *testing.T) uint16 { return serve(t, overTLS13(some, h2, hang)) },
			v1alpha1.HostNotTalos, "a TLS server that agrees to HTTP/2 and doesn't speak it",
		},
		"a peer that sends 64 MiB": {
			func(t *testing.T) uint16 { return serve(t, flood) },
			v1alpha1.HostNotTalos, "a server that doesn't speak TLS",
		},
		"a peer that sends 64 MiB after the handshake": {
			func(t *testing.T) uint16 { return serve(t, overTLS13(some, h2, flood)) },
			v1alpha1.HostNotTalos, "a TLS server that agrees to HTTP/2 and doesn't speak it",
		},
		"a gRPC server that answers with 64 MiB": {
			func(t *testing.T) uint16 { return floodingService(t, some) },
			v1alpha1.HostNotTalos, "an HTTP/2 server that isn't Talos|an HTTP/2 server that doesn't answer", // the latter on a slow machine
		},
		"a peer that closes at once": {
			func(t *testing.T) uint16 { return serve(t, func(net.Conn) {}) },
			v1alpha1.HostNotTalos, "a server that closes the connection instead of speaking TLS",
		},
		"a mail server": {
			func(t *testing.T) uint16 { return serve(t, say("220 mail.example.org ESMTP\r\n")) },
			v1alpha1.HostNotTalos, "an SMTP or FTP server",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := probe(t, tc.port(t))
			if got.Class != tc.class || !slices.Contains(strings.Split(tc.words, "|"), got.Message) {
				t.Errorf("got %s, %q; want %s, %q", got.Class, got.Message, tc.class, tc.words)
			}
			known := got.Class == v1alpha1.HostMaintenance || got.Class == v1alpha1.HostAlreadyConfigured
			if known != (got.Fingerprint != "") {
				t.Errorf("class %s with fingerprint %q", got.Class, got.Fingerprint)
			}
		})
	}
}

func TestProbeReportsTheConsolesFingerprint(t *testing.T) {
	t.Parallel()
	node := maintenanceNode(t)
	if diff := cmp.Diff(node.pin, probe(t, node.port).Fingerprint); diff != "" {
		t.Errorf("fingerprint (-want +got):\n%s", diff)
	}
}

func TestProbeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	options := talos.ProbeOptions{Port: serve(t, hang), HandshakeTimeout: time.Hour}
	begin := time.Now()
	talos.NewProber(options).Probe(cancelled(t), loopback)
	if took := time.Since(begin); took > quickBound {
		t.Errorf("the probe outlived its context by %s", took)
	}
}

// The peer may send without end; the probe's memory must not follow.
func TestProbeOfFloodsNeedsLittleMemory(t *testing.T) {
	port := serve(t, flood)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 8 {
		probe(t, port)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 32<<20 {
		t.Errorf("eight probes of a flood allocated %d MiB", grown>>20)
	}
}
