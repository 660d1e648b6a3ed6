// SPDX-License-Identifier: Apache-2.0

package talos_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"maesh.dev/ichor/pkg/talos"
)

// afterHandshake counts what a client sends once the handshake is done.
func afterHandshake(counter *atomic.Int64) func(net.Conn) {
	return func(conn net.Conn) {
		n, _ := io.Copy(io.Discard, conn)
		counter.Add(n)
	}
}

func TestNothingIsSentToAnotherCertificate(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	certificate := newAuthority(t, "").server(t, maintenanceName)
	port := serve(t, overTLS13(certificate, []string{"h2"}, afterHandshake(&sent)))
	approved := talos.FingerprintOf(newAuthority(t, "").server(t, maintenanceName).Leaf)

	_, err := talos.NewDialer(talos.DialOptions{Port: port}).DialMaintenance(t.Context(), loopback, approved)
	var mismatch *talos.FingerprintError
	if !errors.As(err, &mismatch) {
		t.Fatalf("got error %v, want a FingerprintError", err)
	}
	if mismatch.Want != approved || mismatch.Got != talos.FingerprintOf(certificate.Leaf) || mismatch.Address != loopback.String() {
		t.Errorf("got %+v", mismatch)
	}
	if !strings.Contains(err.Error(), string(mismatch.Want)) || !strings.Contains(err.Error(), string(mismatch.Got)) {
		t.Errorf("the message doesn't name both fingerprints: %v", err)
	}
	if n := sent.Load(); n != 0 {
		t.Errorf("%d bytes were sent to a machine with another certificate", n)
	}
}

func TestDialMaintenanceAcceptsItsPin(t *testing.T) {
	t.Parallel()
	node := maintenanceNode(t)
	if got := node.dialMaintenance(t).Fingerprint(); got != node.pin {
		t.Errorf("fingerprint %s, want %s", got, node.pin)
	}
}

func TestDialConfigured(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t, "talos"), newAuthority(t, "talos")
	elsewhere := net.IPv4(127, 0, 0, 9)

	for name, tc := range map[string]struct {
		node        *fakeNode
		credentials talos.Credentials
		want        string // part of the error; empty for success
	}{
		"a machine of ours": {
			startNode(t, ours.server(t, "cp-1"), &ours, nil), ours.credentials(t), "",
		},
		"a machine of another cluster": {
			startNode(t, theirs.server(t, "cp-1"), &theirs, nil), ours.credentials(t), "certificate signed by unknown authority",
		},
		"a machine that doesn't know our client certificate": {
			startNode(t, ours.server(t, "cp-1"), &theirs, nil), ours.credentials(t), "tls: ",
		},
		"a certificate for another address": {
			startNode(t, ours.issue(t, pkixName("cp-1"), serverAuth, elsewhere), &ours, nil), ours.credentials(t), "certificate is valid for 127.0.0.9, not 127.0.0.1",
		},
		"a machine in maintenance mode": {
			maintenanceNode(t), ours.credentials(t), "tls: ",
		},
		"credentials without an authority": {
			startNode(t, ours.server(t, "cp-1"), &ours, nil), talos.Credentials{}, "no certificate authority",
		},
		"credentials with a broken key": {
			startNode(t, ours.server(t, "cp-1"), &ours, nil), talos.Credentials{CA: ours.pem, Certificate: ours.pem, Key: []byte("SECRET")}, "can't be used",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, err := talos.NewDialer(tc.node.options()).DialConfigured(t.Context(), loopback, tc.credentials)
			if err == nil {
				_ = node.Close()
			}
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("got error %v, want success", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "SECRET")):
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestDialsEndInTime(t *testing.T) {
	t.Parallel()
	certificate := newAuthority(t, "").server(t, maintenanceName)
	for name, port := range map[string]uint16{
		"hangs in the handshake":    serve(t, hang),
		"hangs after the handshake": serve(t, overTLS13(certificate, []string{"h2"}, hang)),
		"floods":                    serve(t, flood),
		"floods after it":           serve(t, overTLS13(certificate, []string{"h2"}, flood)),
		"is an SSH server":          serve(t, say("SSH-2.0-x\r\n")),
		"isn't there":               refusedPort(t),
	} {
		t.Run("a peer that "+name, func(t *testing.T) {
			t.Parallel()
			dialer := talos.NewDialer(talos.DialOptions{Port: port, ConnectTimeout: time.Second})
			begin := time.Now()
			_, err := dialer.DialMaintenance(t.Context(), loopback, "")
			if err == nil || time.Since(begin) > quickBound {
				t.Errorf("got error %v after %s, want one after at most a second", err, time.Since(begin))
			}
		})
	}
}

// Another connection may lead to another machine, so a lost one is never made again by itself.
func TestLostConnectionIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	var accepted atomic.Int64
	closed := make(chan struct{})
	node := startNode(t, newAuthority(t, "").server(t, maintenanceName), nil, func(l net.Listener) net.Listener {
		return &countingListener{Listener: l, accepted: &accepted, closeOn: closed}
	})
	connection := node.dialMaintenance(t)
	if _, err := connection.Stage(t.Context()); err != nil {
		t.Fatalf("first read: %v", err)
	}
	close(closed)
	for range 3 {
		if _, err := connection.Stage(t.Context()); err == nil || !talos.IsLost(err) {
			t.Errorf("read over a lost connection: got %v, want a lost call", err)
		}
	}
	if n := accepted.Load(); n != 1 {
		t.Errorf("%d connections were made, want 1", n)
	}
}

func TestParseFingerprint(t *testing.T) {
	t.Parallel()
	good := string(talos.FingerprintOf(newAuthority(t, "").cert))
	for name, tc := range map[string]struct {
		text string
		ok   bool
	}{
		"as the console shows it": {good, true},
		"with white space":        {" " + good + "\n", true},
		"empty":                   {"", false},
		"too short":               {good[:40], false},
		"hexadecimal":             {strings.Repeat("ab:", 32), false},
		"without padding":         {strings.TrimRight(good, "="), false},
	} {
		got, err := talos.ParseFingerprint(tc.text)
		if (err == nil) != tc.ok || tc.ok && string(got) != good {
			t.Errorf("%s: ParseFingerprint(%q) = %q, %v", name, tc.text, got, err)
		}
	}
}
