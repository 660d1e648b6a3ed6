// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/host"
	"maesh.dev/ichor/test/hollow/node"
)

const (
	// machines is how many there are in the /16, and stride how many addresses lie between two of them.
	machines = 200
	stride   = 327
	// ready is what the process of the machines says once all of them listen.
	ready = "ready"
	// bootPatience bounds how long that takes.
	bootPatience = 2 * time.Minute
)

// freeNetwork finds a loopback /16 in which nobody is, and claims it as long as the listener is open. Blocks up to
// 127.127 are left to fleet files and tests.
func freeNetwork() (netip.Prefix, net.Listener, error) {
	const first, count, claimPort = 128, 127, 49999
	var last error
	for _, i := range rand.Perm(count) {
		address := netip.AddrFrom4([4]byte{127, byte(first + i), 255, 254})
		claim, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, claimPort)))
		if err == nil {
			return netip.PrefixFrom(address, 16).Masked(), claim, nil
		}
		last = err
	}
	return netip.Prefix{}, nil, fmt.Errorf("find a free loopback /16: %w", last)
}

// rack is the fleet of the /16.
func rack(network netip.Prefix) (*fleet.Fleet, error) {
	at := network.Addr().As4()
	fast := fleet.Duration(20 * time.Millisecond)
	f, err := fleet.Generate(fleet.GenerateOptions{
		Machines: machines, First: network.Addr().Next(), PrefixBits: network.Bits(), Seed: 1,
		Timings: fleet.Timings{Boot: fast, Install: fast, Reboot: fast, Pull: fast, FatalPause: fast},
	})
	if err != nil {
		return nil, err
	}
	for i := range f.Machines {
		offset := 1 + i*stride
		address := netip.AddrFrom4([4]byte{at[0], at[1], byte(offset >> 8), byte(offset)})
		f.Machines[i].Address = fleet.Prefix{Prefix: netip.PrefixFrom(address, network.Bits())}
	}
	return f, nil
}

// nodesTask is the task of the process that hosts the machines.
type nodesTask struct {
	Network netip.Prefix
	Dir     string
}

// hostNodes hosts the machines until standard input ends.
func hostNodes(ctx context.Context, in io.Reader, out io.Writer) error {
	reader := json.NewDecoder(in)
	var task nodesTask
	if err := reader.Decode(&task); err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	f, err := rack(task.Network)
	if err != nil {
		return err
	}
	h, err := host.Start(host.Options{Fleet: f, Dir: task.Dir})
	if err != nil {
		return err
	}
	defer h.Close()
	waiting, cancel := context.WithTimeout(ctx, bootPatience)
	defer cancel()
	for _, name := range h.Names() {
		n, err := h.Node(name)
		if err != nil {
			return err
		}
		if _, err := n.WaitFor(waiting, func(s node.Status) bool { return s.Listening }); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(out, ready); err != nil {
		return err
	}
	if err := reader.Decode(&task); !errors.Is(err, io.EOF) {
		return fmt.Errorf("wait for the end of standard input: %w", err)
	}
	return nil
}

// startNodes starts the process of the machines and returns when they listen. stop ends it.
func startNodes(ctx context.Context, network netip.Prefix, dir string) (stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(nodesTask{network, dir})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "nodes")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the machines: %w", err)
	}
	stop = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	if _, err := in.Write(text); err != nil {
		return nil, errors.Join(fmt.Errorf("start the machines: %w", err), stop())
	}
	said, err := bufio.NewReader(io.LimitReader(out, 64)).ReadString('\n')
	if err != nil || said != ready+"\n" {
		return nil, errors.Join(fmt.Errorf("start the machines: they said %q (%w)", said, err), stop())
	}
	return stop, nil
}

// target is the address and port that every program connects to.
func target(network netip.Prefix, offset int) netip.AddrPort {
	at := network.Addr().As4()
	at[2] += byte(offset >> 8)
	at[3] = byte(offset)
	return netip.AddrPortFrom(netip.AddrFrom4(at), talos.Port)
}
