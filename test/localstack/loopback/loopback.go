// SPDX-License-Identifier: Apache-2.0

// Package loopback gives every local stack a range of 127.0.0.0/8 of its own, so that several run side by side. The
// listener on the range's endpoint is the claim: the kernel gives it up when the process ends, however it ends.
package loopback

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
)

const (
	// bits is the length of a range's prefix: 4,096 addresses.
	bits = 20
	// ranges is how many there are to choose from; tests of single hollow machines use 127.64.0.0 and up.
	ranges = 40
	// endpointHost and firstHost are places in a range: where the cluster's endpoint and the first machine are.
	endpointHost, firstHost = 2, 11
	// endpointPort is that of a cluster's endpoint. Source: api.md, default of spec.controlPlane.endpoint.port.
	endpointPort = 6443
	// talosPort is where a machine's Talos API is.
	talosPort = 50000
)

// Capacity is how many machines fit into a range.
const Capacity = 1<<(32-bits) - firstHost - 1

// Default is the range that is tried first, and that addresses of fleet files are in.
var Default = nth(0)

// Range is a claimed range of addresses.
type Range struct {
	prefix   netip.Prefix
	listener net.Listener
}

// nth are the ranges in the order in which they are tried: 127.0.16.0/20, 127.17.0.0/20, 127.18.0.0/20, ...
func nth(n int) netip.Prefix {
	if n == 0 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 0, 16, 0}), bits)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(16 + n), 0, 0}), bits)
}

// Claim takes the first range that is free.
func Claim() (*Range, error) {
	for n := range ranges {
		r, err := ClaimPrefix(nth(n))
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("claim loopback range: all %d are in use; end another stack first", ranges)
}

// ClaimPrefix takes this range, which an earlier Claim chose. The error is syscall.EADDRINUSE if it is in use.
func ClaimPrefix(prefix netip.Prefix) (*Range, error) {
	r := &Range{prefix: prefix}
	listener, err := net.Listen("tcp4", net.JoinHostPort(r.Endpoint().Addr().String(), strconv.Itoa(endpointPort)))
	if err != nil {
		return nil, fmt.Errorf("claim loopback range %s: %w", prefix, err)
	}
	// Somebody may run hollow machines by hand; they hold no endpoint.
	first, err := net.Listen("tcp4", netip.AddrPortFrom(r.Machine(0), talosPort).String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("claim loopback range %s: %w", prefix, err), listener.Close())
	}
	if err := first.Close(); err != nil {
		return nil, errors.Join(fmt.Errorf("claim loopback range %s: %w", prefix, err), listener.Close())
	}
	r.listener = listener
	return r, nil
}

// Prefix is the whole range.
func (r *Range) Prefix() netip.Prefix { return r.prefix }

// Endpoint is the address of the cluster's endpoint.
func (r *Range) Endpoint() netip.AddrPort {
	return netip.AddrPortFrom(r.at(endpointHost), endpointPort)
}

// Machine is the address of the nth machine, counted from 0.
func (r *Range) Machine(n int) netip.Addr { return r.at(firstHost + n) }

// Listener listens on the endpoint. Closing it gives the range up.
func (r *Range) Listener() net.Listener { return r.listener }

// Close gives the range up.
func (r *Range) Close() error { return r.listener.Close() }

// Move puts an address of the default range at the same place in this one; other addresses stay.
func (r *Range) Move(address netip.Addr) netip.Addr {
	if !Default.Contains(address) {
		return address
	}
	return r.at(offset(Default, address))
}

func (r *Range) at(host int) netip.Addr {
	base := r.prefix.Addr().As4()
	n := uint32(base[0])<<24 | uint32(base[1])<<16 | uint32(base[2])<<8 | uint32(base[3])
	n += uint32(host)
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// offset is the place of an address in a prefix that contains it.
func offset(prefix netip.Prefix, address netip.Addr) int {
	base, at := prefix.Addr().As4(), address.As4()
	distance := 0
	for i := range base {
		distance = distance<<8 + int(at[i]) - int(base[i])
	}
	return distance
}

// Cover is the smallest prefix, at most as long as a /24, that contains all addresses: what a scan has to look at.
func Cover(addresses []netip.Addr) netip.Prefix {
	if len(addresses) == 0 {
		return netip.Prefix{}
	}
	for length := 24; length > 0; length-- {
		prefix := netip.PrefixFrom(addresses[0], length).Masked()
		all := true
		for _, address := range addresses {
			all = all && prefix.Contains(address)
		}
		if all {
			return prefix
		}
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}
