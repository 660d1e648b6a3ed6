// SPDX-License-Identifier: Apache-2.0

package loopback_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/test/localstack/loopback"
)

func claim(t *testing.T) *loopback.Range {
	t.Helper()
	r, err := loopback.Claim()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func TestStacksSideBySideGetRangesOfTheirOwn(t *testing.T) {
	t.Parallel()
	a, b := claim(t), claim(t)
	if a.Prefix().Overlaps(b.Prefix()) {
		t.Errorf("%s and %s overlap", a.Prefix(), b.Prefix())
	}
}

func TestARangeIsClaimedOnceAndFreeAgainAfterwards(t *testing.T) {
	t.Parallel()
	prefix := netip.MustParsePrefix("127.250.0.0/20") // one that Claim never chooses
	r, err := loopback.ClaimPrefix(prefix)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loopback.ClaimPrefix(prefix); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("second claim: %v, want %v", err, syscall.EADDRINUSE)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := loopback.ClaimPrefix(prefix)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestPlacesInARange(t *testing.T) {
	t.Parallel()
	r, err := loopback.ClaimPrefix(netip.MustParsePrefix("127.251.0.0/20"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	want := []string{"127.251.0.2:6443", "127.251.0.11", "127.251.1.10", "127.251.0.20", "127.99.0.1", "127.251.15.255"}
	got := []string{
		r.Endpoint().String(), r.Machine(0).String(), r.Machine(255).String(),
		r.Move(netip.MustParseAddr("127.0.16.20")).String(), r.Move(netip.MustParseAddr("127.99.0.1")).String(),
		r.Move(netip.MustParseAddr("127.0.31.255")).String(),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCoverIsTheSmallestSubnetToScan(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		addresses []string
		want      string
	}{
		"one machine":         {[]string{"127.0.16.11"}, "127.0.16.0/24"},
		"one rack":            {[]string{"127.0.16.11", "127.0.16.250"}, "127.0.16.0/24"},
		"more than 256":       {[]string{"127.0.16.11", "127.0.17.9"}, "127.0.16.0/23"},
		"across a boundary":   {[]string{"127.0.16.11", "127.0.23.9"}, "127.0.16.0/21"},
		"outside of the rest": {[]string{"127.0.16.11", "127.0.32.1"}, "127.0.0.0/18"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var addresses []netip.Addr
			for _, a := range test.addresses {
				addresses = append(addresses, netip.MustParseAddr(a))
			}
			if got := loopback.Cover(addresses).String(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
