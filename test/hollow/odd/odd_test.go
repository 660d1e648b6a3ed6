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
