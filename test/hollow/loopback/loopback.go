// SPDX-License-Identifier: Apache-2.0

// Package loopback hands out blocks of loopback addresses, so that test binaries that run at the same time don't meet on
// port 50000.
package loopback

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
)

// Block is a /24 that this process has for itself until Close.
type Block struct {
	prefix netip.Prefix
	claim  net.Listener
}

const (
	// firstBlock is 127.64.0.0; the blocks below are left to people and fleet files (127.0.16.0/20).
	firstBlock = 127<<24 | 64<<16
	blocks     = 1 << 14
	attempts   = 256
	// claimHost and claimPort are the address that stands for the block: whoever listens there has it. The kernel takes
	// the claim back when a process dies.
	claimHost = 254
	claimPort = 50000
)

// Usable is how many addresses a block has.
const Usable = claimHost - 1

// Claim finds a free block.
func Claim() (*Block, error) {
	var last error
	for range attempts {
		base := uint32(firstBlock + rand.IntN(blocks)<<8)
		claim, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: addr(base + claimHost).AsSlice(), Port: claimPort})
		if err != nil {
			last = err
			continue
		}
		return &Block{prefix: netip.PrefixFrom(addr(base), 24), claim: claim}, nil
	}
	return nil, fmt.Errorf("claim a block of loopback addresses: none of %d tried is free: %w", attempts, last)
}

func addr(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// Prefix is the block as a network.
func (b *Block) Prefix() netip.Prefix { return b.prefix }

// Addr is the i-th address of the block, from 1 to Usable.
func (b *Block) Addr(i int) netip.Addr {
	if i < 1 || i > Usable {
		panic(fmt.Sprintf("loopback: address %d of a block of %d", i, Usable))
	}
	base := b.prefix.Addr().As4()
	base[3] = byte(i)
	return netip.AddrFrom4(base)
}

// Close gives the block back.
func (b *Block) Close() error { return b.claim.Close() }
