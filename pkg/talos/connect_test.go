// SPDX-License-Identifier: Apache-2.0

package talos_test

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// TestAPeerOfEitherFamilyIsConnectedToOnce holds what asks for connections to asking once: a second request would double
// the packets of a scan and meet a server twice.
func TestAPeerOfEitherFamilyIsConnectedToOnce(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1", "::ffff:127.0.0.1", "::1"} {
		to := netip.MustParseAddr(address)
		listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(to, 0)))
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		met := make(chan int, 1)
		go func() {
			count := 0
			for {
				conn, err := listener.Accept()
				if err != nil {
					met <- count
					return
				}
				count++
				_, _ = conn.Write([]byte("SSH-2.0-OpenSSH_9.9\r\n"))
				_ = conn.Close()
			}
		}()
		port := netip.MustParseAddrPort(listener.Addr().String()).Port()
		got := talos.NewProber(talos.ProbeOptions{Port: port}).Probe(t.Context(), to)
		if got.Class != v1alpha1.HostNotTalos {
			t.Errorf("%s: %+v", address, got)
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		if count := <-met; count != 1 {
			t.Errorf("%s: connected to %d times", address, count)
		}
		if got := talos.NewProber(talos.ProbeOptions{Port: port}).Probe(t.Context(), to); got.Class != v1alpha1.HostUnreachable || got.Message != "connection refused" {
			t.Errorf("%s, closed: %+v", address, got)
		}
	}
}

// BenchmarkRefusal is what nearly every address of a large network costs.
func BenchmarkRefusal(b *testing.B) {
	prober := talos.NewProber(talos.ProbeOptions{Port: 1})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		if got := prober.Probe(ctx, loopback); got.Class != v1alpha1.HostUnreachable {
			b.Fatalf("%+v", got)
		}
	}
}
