// SPDX-License-Identifier: Apache-2.0

// Package hollowtest starts hollow machines inside a test: addresses of their own, folders of the test, everything
// switched off at its end.
package hollowtest

import (
	"context"
	"net/netip"
	"os"
	"testing"
	"time"

	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/loopback"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/hollow/workload"
)

// Rack is the place of a test's machines.
type Rack struct {
	tb        testing.TB
	block     *loopback.Block
	discovery *node.Discovery
	dir       string
	used      int
	// Workload is given to machines that are started from now on.
	Workload workload.Factory
}

// NewRack claims a /24 for the test.
func NewRack(tb testing.TB) *Rack {
	tb.Helper()
	return NewRackOf(tb, 24)
}

// NewRackOf claims a network with a prefix of the given length, from 16 to 24. Addresses are taken from its /24s in turn.
func NewRackOf(tb testing.TB, bits int) *Rack {
	tb.Helper()
	block, err := loopback.ClaimNetwork(bits)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := block.Close(); err != nil {
			tb.Error(err)
		}
	})
	return &Rack{tb: tb, block: block, discovery: &node.Discovery{}, dir: tb.TempDir()}
}

// Prefix is the network of the rack.
func (r *Rack) Prefix() netip.Prefix { return r.block.Prefix() }

// Addr takes the next free address.
func (r *Rack) Addr() netip.Addr {
	networks := len(r.block.Claimed())
	r.used++
	return r.block.AddrIn((r.used-1)%networks, (r.used-1)/networks+1)
}

// Claimed are the addresses that hold the rack's network: something listens there and never accepts.
func (r *Rack) Claimed() []netip.Addr { return r.block.Claimed() }

// Machine is a plausible machine at the next free address; the test may change it before it starts it.
func (r *Rack) Machine() fleet.Machine {
	r.tb.Helper()
	fast := fleet.Duration(20 * time.Millisecond)
	f, err := fleet.Generate(fleet.GenerateOptions{
		Machines: 1, First: r.Addr(), Seed: uint64(r.used), NamePrefix: "m",
		Timings: fleet.Timings{Boot: fast, Install: fast, Reboot: fast, Pull: fast, FatalPause: fast},
	})
	if err != nil {
		r.tb.Fatal(err)
	}
	m := f.Machines[0]
	m.Name = "m-" + m.Addr().String()[len("127."):]
	m.Name = dashes(m.Name)
	return m
}

func dashes(s string) string {
	out := []byte(s)
	for i, c := range out {
		if c == '.' {
			out[i] = '-'
		}
	}
	return string(out)
}

// Start makes a node of the machine and switches it on, unless its state is Off. It is cut off at the end of the test.
func (r *Rack) Start(m fleet.Machine) *node.Node {
	r.tb.Helper()
	n, err := node.New(node.Options{Machine: m, Dir: r.dir, Workload: r.Workload, Discovery: r.discovery})
	if err != nil {
		r.tb.Fatal(err)
	}
	r.tb.Cleanup(n.Close)
	if err := n.Start(); err != nil {
		r.tb.Fatal(err)
	}
	return n
}

// Patience bounds what a test waits for. Machines of continuous integration are slower than a developer's, and the race
// detector makes a node many times slower.
var Patience = func() time.Duration {
	if os.Getenv("CI") != "" {
		return 2 * time.Minute
	}
	return 30 * time.Second
}()

// Wait waits until the condition holds for the node.
func Wait(tb testing.TB, n *node.Node, condition func(node.Status) bool) node.Status {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	s, err := n.WaitFor(ctx, condition)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Dir is the folder that the machines' folders are in.
func (r *Rack) Dir() string { return r.dir }
