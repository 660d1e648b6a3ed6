// SPDX-License-Identifier: Apache-2.0

package loopback_test

import (
	"net"
	"net/netip"
	"testing"

	"maesh.dev/ichor/test/hollow/loopback"
)

func TestANetworkIsClaimedWhole(t *testing.T) {
	t.Parallel()
	block, err := loopback.ClaimNetwork(20)
	if err != nil {
		t.Fatal(err)
	}
	if got := block.Prefix(); got.Bits() != 20 || got != got.Masked() {
		t.Errorf("the network is %s", got)
	}
	claimed := block.Claimed()
	if len(claimed) != 16 {
		t.Fatalf("%d claims in a /20, want one for each /24", len(claimed))
	}
	for i, address := range claimed {
		if !block.Prefix().Contains(address) || !netip.PrefixFrom(address, 24).Masked().Contains(block.AddrIn(i, 1)) {
			t.Errorf("claim %d is %s, in %s", i, address, block.Prefix())
		}
		at := net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, 50000))
		if again, err := net.ListenTCP("tcp4", at); err == nil {
			_ = again.Close() // it shouldn't be there
			t.Errorf("%s can be claimed by another", address)
		}
	}
	if err := block.Close(); err != nil {
		t.Error(err)
	}
}

func TestOnlyNetworksOfLoopbackAreClaimed(t *testing.T) {
	t.Parallel()
	for _, bits := range []int{8, 15, 25, 32} {
		if block, err := loopback.ClaimNetwork(bits); err == nil {
			t.Errorf("a /%d was claimed: %s", bits, block.Prefix())
		}
	}
}
