// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"maesh.dev/ichor/test/hollow/disk"
	"maesh.dev/ichor/test/hollow/fleet"
)

// faults are the misbehaviours that were asked for. They last until they are taken back, over reboots too.
type faults struct {
	mu sync.Mutex
	// hang makes the listener accept connections and never say a word.
	hang bool
	// hung are connections held that way.
	hung map[net.Conn]struct{}
	// delay is added to each call.
	delay time.Duration
	// round counts the demands for a new certificate.
	round int
	// failInstall makes the next installs and upgrades fail.
	failInstall bool
	// oversize makes the inventory too large for any client to receive.
	oversize bool
	// dropApply closes the connection of the next ApplyConfiguration before its answer.
	dropApply bool
	// cutApply closes the connection of the next ApplyConfiguration before its request is complete.
	cutApply bool
	// lateApply is how long the next ApplyConfiguration is on its way inside of the machine.
	lateApply time.Duration
	// failPull is how pulls end; slowPull and slowInstall are how long pulls and installers take, if not zero.
	failPull              string
	slowPull, slowInstall time.Duration
	// dropUpgrade closes the connection of the next LifecycleService.Upgrade while the installer runs.
	dropUpgrade bool
	// failUpgradedBoot makes a system fail that was installed over another one.
	failUpgradedBoot bool
	// otherSchematic is what is installed in place of what an image names.
	otherSchematic string
	// also are further addresses of the machine.
	also []netip.Prefix
}

func newFaults() *faults { return &faults{hung: map[net.Conn]struct{}{}} }

func (f *faults) certificateRound() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.round
}

func (f *faults) installError(image string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failInstall {
		return fmt.Errorf("installer of %s failed: exit code 1", image)
	}
	return nil
}

func (f *faults) callDelay() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.delay
}

// hold keeps a connection without an answer if that was asked for.
func (f *faults) hold(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hang {
		f.hung[c] = struct{}{}
	}
	return f.hang
}

// release closes the connections that were held.
func (f *faults) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.hung {
		_ = c.Close() // whatever state it is in, it is gone
		delete(f.hung, c)
	}
}

// faultyListener counts what it accepts and, on demand, holds it.
type faultyListener struct {
	net.Listener
	node *Node
}

// Accept implements net.Listener.
func (l *faultyListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		counted := l.node.traffic.accepted(c)
		l.node.notify()
		if !l.node.faults.hold(counted) {
			return counted, nil
		}
	}
}

// Close implements net.Listener.
func (l *faultyListener) Close() error {
	l.node.faults.release()
	return l.Listener.Close()
}

func (b *boot) delayUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if d := b.node.faults.callDelay(); d > 0 && !pause(ctx, d) {
		return nil, ctx.Err()
	}
	return handler(ctx, req)
}

func (b *boot) delayStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if d := b.node.faults.callDelay(); d > 0 && !pause(stream.Context(), d) {
		return stream.Context().Err()
	}
	return handler(srv, stream)
}

// HangTLS makes the API accept connections and never answer, or ends that.
func (n *Node) HangTLS(on bool) {
	n.faults.mu.Lock()
	n.faults.hang = on
	n.faults.mu.Unlock()
	if !on {
		n.faults.release()
	}
}

// Slow delays every call; zero ends it.
func (n *Node) Slow(d time.Duration) {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	n.faults.delay = d
}

// FailInstall makes installs and upgrades fail from now on, or ends that.
func (n *Node) FailInstall(on bool) {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	n.faults.failInstall = on
}

// DropApply breaks the connection of the next ApplyConfiguration: it takes effect, but the caller gets no answer.
func (n *Node) DropApply() {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	n.faults.dropApply = true
}

func (f *faults) takeDropApply() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	drop := f.dropApply
	f.dropApply = false
	return drop
}

// CutApply breaks the connection of the next ApplyConfiguration before all of it has arrived: it takes no effect, and the
// caller can't tell that from a lost answer.
func (n *Node) CutApply() {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	n.faults.cutApply = true
}

func (f *faults) takeCutApply() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	cut := f.cutApply
	f.cutApply = false
	return cut
}

// LateApply lets the next ApplyConfiguration take effect this long after it arrived, even if its caller is gone by then,
// as one that waits in a buffer on its way does.
func (n *Node) LateApply(d time.Duration) {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	n.faults.lateApply = d
}

func (f *faults) takeLateApply() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.lateApply
	f.lateApply = 0
	return d
}

// oversized is more than a client of Talos receives in one message (32 MiB).
const oversized = 40 << 20

// Oversize makes the machine's SMBIOS information too large for any client to receive, or ends that.
func (n *Node) Oversize(on bool) {
	n.faults.mu.Lock()
	n.faults.oversize = on
	n.faults.mu.Unlock()
	if b := n.current(); b != nil {
		b.refresh()
	}
}

func (f *faults) isOversize() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.oversize
}

// NewCertificate makes the node present a new certificate with a new key, as Talos does on any change of address or time.
func (n *Node) NewCertificate() {
	n.faults.mu.Lock()
	n.faults.round++
	n.faults.mu.Unlock()
	if b := n.current(); b != nil {
		b.api.kick()
	}
}

// Wipe empties all disks. A machine that is on loses its power for it, and is switched on again afterwards.
func (n *Node) Wipe() error {
	return n.whileOff(func(h *hardware) error {
		for i := range h.Machine.Disks {
			h.Machine.Disks[i].Signature = ""
		}
		return n.folder.Wipe()
	})
}

// ErrNoSuchLink tells that a machine has no NIC of that name.
var ErrNoSuchLink = errors.New("no such link")

// SwapNIC replaces a NIC by one with another permanent address, with the power off.
func (n *Node) SwapNIC(link, mac string) error {
	if _, err := net.ParseMAC(mac); err != nil {
		return fmt.Errorf("swap NIC of %s: %w", n.Name(), err)
	}
	return n.whileOff(func(h *hardware) error {
		for i := range h.Machine.Links {
			if h.Machine.Links[i].Name == link {
				h.Machine.Links[i].PermanentMAC, h.Machine.Links[i].MAC = mac, mac
				return nil
			}
		}
		return fmt.Errorf("swap NIC of %s: %s: %w", n.Name(), link, ErrNoSuchLink)
	})
}

// PresentUUID changes the SMBIOS UUID, as a new mainboard does, with the power off.
func (n *Node) PresentUUID(uuid string) error {
	return n.whileOff(func(h *hardware) error {
		h.Machine.UUID = uuid
		return nil
	})
}

// SwapDisk puts another disk in the place of one, with the power off. What was on the old one is gone.
func (n *Node) SwapDisk(d fleet.Disk) error {
	return n.whileOff(func(h *hardware) error {
		for i := range h.Machine.Disks {
			if h.Machine.Disks[i].Device == d.Device {
				h.Machine.Disks[i] = d
				return nil
			}
		}
		h.Machine.Disks = append(h.Machine.Disks, d)
		return nil
	})
}

// ChangeAddress gives the machine another address (another DHCP lease) while it runs. A configuration with a static
// address wins over it.
func (n *Node) ChangeAddress(p netip.Prefix) error {
	if !usable(p) {
		return fmt.Errorf("change the address of %s: %s is not within %s", n.Name(), p, loopback)
	}
	n.mu.Lock()
	n.hardware.Machine.Address = fleet.Prefix{Prefix: p}
	err := disk.WriteHardware(n.folder, n.hardware)
	n.touch()
	b := n.boot
	n.mu.Unlock()
	if err != nil {
		return fmt.Errorf("change the address of %s: %w", n.Name(), err)
	}
	if b != nil {
		b.publishControlPlane()
		b.refresh()
	}
	return nil
}

// AlsoAt gives the machine further addresses besides its own, as a virtual IP does; none takes them back.
func (n *Node) AlsoAt(addresses ...netip.Prefix) error {
	for _, p := range addresses {
		if !usable(p) {
			return fmt.Errorf("give %s another address: %s is not within %s", n.Name(), p, loopback)
		}
	}
	n.faults.mu.Lock()
	n.faults.also = addresses
	n.faults.mu.Unlock()
	if b := n.current(); b != nil {
		b.refresh()
	}
	return nil
}

func (f *faults) alsoAt() []netip.Prefix {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.also)
}

// whileOff changes the hardware without power, and switches the machine on again if it was on.
func (n *Node) whileOff(change func(*hardware) error) error {
	n.mu.Lock()
	powered := n.hardware.Powered
	n.mu.Unlock()
	n.halt()
	n.mu.Lock()
	next := n.hardware
	err := change(&next)
	if err == nil {
		n.hardware = next
		n.touch()
		err = disk.WriteHardware(n.folder, n.hardware)
	}
	n.mu.Unlock()
	if err != nil {
		return err
	}
	if powered {
		return n.PowerOn()
	}
	return nil
}
