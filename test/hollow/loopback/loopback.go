// SPDX-License-Identifier: Apache-2.0

// Package loopback hands out blocks of loopback addresses, so that test binaries that run at the same time don't meet on
// port 50000.
package loopback

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
)

// Block is a network that this process has for itself until Close: a /24 or several in a row.
type Block struct {
	prefix netip.Prefix
	claims []net.Listener
}

const (
	// firstBlock is 127.64.0.0; the blocks below are left to people and fleet files (127.0.16.0/20).
	firstBlock = 127<<24 | 64<<16
	blocks     = 1 << 14
	attempts   = 256
	blockBits  = 24
	// claimHost and claimPort are the address that stands for the block: whoever listens there has it. The kernel takes
	// the claim back when a process dies.
	claimHost = 254
	claimPort = 50000
)

// Usable is how many addresses a /24 has.
const Usable = claimHost - 1

// Claim finds a free /24.
func Claim() (*Block, error) { return ClaimNetwork(blockBits) }

// ClaimNetwork finds a free network with a prefix of the given length, from 16 to 24. Each /24 in it has an address of its
// own that stands for it, so that networks of all sizes keep clear of each other.
func ClaimNetwork(bits int) (*Block, error) {
	if bits < 16 || bits > blockBits {
		return nil, fmt.Errorf("claim a network of loopback addresses: a prefix of %d bits is not within 16 and %d", bits, blockBits)
	}
	size := 1 << (blockBits - bits) // in /24s
	var last error
	for range attempts {
		base := uint32(firstBlock + rand.IntN(blocks/size)*size<<8)
		b := &Block{prefix: netip.PrefixFrom(addr(base), bits)}
		if last = b.claim(base, size); last == nil {
			return b, nil
		}
		if err := b.Close(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("claim a network of loopback addresses: none of %d tried is free: %w", attempts, last)
}

func (b *Block) claim(base uint32, size int) error {
	for i := range size {
		claim, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: addr(base + uint32(i)<<8 + claimHost).AsSlice(), Port: claimPort})
		if err != nil {
			return err
		}
		b.claims = append(b.claims, claim)
	}
	return nil
}

func addr(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// Prefix is the block as a network.
func (b *Block) Prefix() netip.Prefix { return b.prefix }

// Addr is the i-th address of the first /24, from 1 to Usable.
func (b *Block) Addr(i int) netip.Addr { return b.AddrIn(0, i) }

// AddrIn is the i-th address, from 1 to Usable, of one of the block's /24s.
func (b *Block) AddrIn(network, i int) netip.Addr {
	if i < 1 || i > Usable || network < 0 || network >= len(b.claims) {
		panic(fmt.Sprintf("loopback: address %d of the /24 number %d, of %d with %d addresses", i, network, len(b.claims), Usable))
	}
	base := b.prefix.Addr().As4()
	return addr(binary.BigEndian.Uint32(base[:]) + uint32(network)<<8 + uint32(i))
}

// Claimed are the addresses that stand for the block: something listens there and never accepts.
func (b *Block) Claimed() []netip.Addr {
	var out []netip.Addr
	for network := range b.claims {
		out = append(out, b.AddrIn(network, Usable).Next())
	}
	return out
}

// Close gives the block back.
func (b *Block) Close() error {
	var failed error
	for _, claim := range b.claims {
		failed = errors.Join(failed, claim.Close())
	}
	return failed
}
