// SPDX-License-Identifier: Apache-2.0

package odd_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/test/hollow/loopback"
	"maesh.dev/ichor/test/hollow/odd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// talosVersion asks as a client of Talos does, on port 50000.
func talosVersion(t *testing.T, address netip.Addr, patience time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// Nothing here is Talos; there is no certificate to check against.
	c, err := client.New(ctx, client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}), client.WithEndpoints(address.String()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the test is over
	_, err = c.Version(ctx)
	return err
}

func TestATalosClientMeetsWhatIsNotTalos(t *testing.T) {
	t.Parallel()
	block, err := loopback.Claim()
	if err != nil {
		t.Fatal(err)
	}
	defer block.Close() //nolint:errcheck // the process ends
	behind := block.Addr(loopback.Usable)
	ssh, err := odd.SSH(netip.AddrPortFrom(behind, 50000))
	if err != nil {
		t.Fatal(err)
	}
	defer ssh.Close() //nolint:errcheck // checked for each server below
	for i, c := range []struct {
		name   string
		listen func(netip.AddrPort) (io.Closer, error)
		code   codes.Code
		text   string
	}{
		{"an ssh server", odd.SSH, codes.Unavailable, "first record does not look like a TLS handshake"},
		{"a plain web server", odd.HTTP, codes.Unavailable, "first record does not look like a TLS handshake"},
		{"TLS without h2", odd.TLSWithoutH2, codes.Unavailable, "missing selected ALPN property"},
		{"another gRPC server", odd.GRPC, codes.Unimplemented, "unknown service machine.MachineService"},
		{"a silent server", odd.Silent, codes.DeadlineExceeded, ""},
		{"a handshake that stops in the middle", odd.HalfTLS, codes.DeadlineExceeded, ""},
		{"64 MiB of zeroes", odd.Flood, codes.Unavailable, "first record does not look like a TLS handshake"},
		{"a mail server", odd.SMTP, codes.Unavailable, "first record does not look like a TLS handshake"},
		{"a server that doesn't read", odd.Deaf, codes.DeadlineExceeded, ""},
		{"a server that closes", odd.Closing, codes.Unavailable, ""},
		{"a server that resets", odd.Resetting, codes.Unavailable, "connection reset by peer"},
		{"a handshake byte by byte", odd.Trickle, codes.DeadlineExceeded, ""},
		{"a server without TLS 1.3", odd.OldTLS, codes.DeadlineExceeded, ""},
		{"a server that wants a certificate", odd.Locked, codes.Unavailable, ""},
		{"HTTP/2 that is reset", odd.H2Reset, codes.Unavailable, ""},
		{"HTTP/2 that says nothing", odd.H2Silent, codes.DeadlineExceeded, ""},
		{"HTTP/2 byte by byte", odd.H2Trickle, codes.DeadlineExceeded, ""},
		{"HTTP/2 that is 64 MiB of zeroes", odd.H2Flood, codes.Unavailable, ""},
		{"a web server with HTTP/2", odd.HTTPS, codes.Unimplemented, "HTTP status code received from server: 404"},
		{"a call that is answered with 64 MiB", odd.GRPCFlood, codes.ResourceExhausted, ""},
		{"what looks like a machine and is none", odd.Lookalike, codes.Unimplemented, "unknown service machine.MachineService"},
		{"what looks like a machine and answers with 64 MiB", odd.LookalikeFlood, codes.ResourceExhausted, ""},
		{"what looks like a machine and never answers", odd.LookalikeHang, codes.DeadlineExceeded, ""},
		{"a proxy in front of an ssh server", odd.Proxy(behind), codes.Unavailable, "first record does not look like a TLS handshake"},
	} {
		address := netip.AddrPortFrom(block.Addr(i+1), 50000)
		t.Run(c.name, func(t *testing.T) {
			server, err := c.listen(address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := server.Close(); err != nil {
					t.Error(err)
				}
			}()
			patience := 10 * time.Second
			if c.code == codes.DeadlineExceeded {
				patience = 300 * time.Millisecond
			}
			err = talosVersion(t, address.Addr(), patience)
			if status.Code(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %s with %q", err, c.code, c.text)
			}
		})
	}
}

func TestTheFloodIs64MiB(t *testing.T) {
	t.Parallel()
	block, err := loopback.Claim()
	if err != nil {
		t.Fatal(err)
	}
	defer block.Close() //nolint:errcheck // the process ends
	address := netip.AddrPortFrom(block.Addr(1), 50000)
	server, err := odd.Flood(address)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close() //nolint:errcheck // checked elsewhere
	c, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the test is over
	if n, err := io.CopyN(io.Discard, c, 64<<20); err != nil || n != 64<<20 {
		t.Errorf("read %d bytes: %v", n, err)
	}
}
