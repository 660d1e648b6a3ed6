// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"maesh.dev/ichor/test/hollow/disk"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/workload"
)

// Options make a Node.
type Options struct {
	// Machine is the entry of the fleet file. It is completed with defaults and must be valid.
	Machine fleet.Machine
	// Dir is where the machine's folder (named like the machine) is made.
	Dir string
	// Workload runs Kubernetes' parts. With nil a control plane never gets etcd and a worker never a Node.
	Workload workload.Factory
	// Discovery is shared by nodes that can find each other; nil means that the node finds nobody.
	Discovery *Discovery
	// Log takes what the node does; nil discards it.
	Log *slog.Logger
}

// Node is a hollow machine. All methods may be called from any goroutine.
type Node struct {
	options Options
	folder  *disk.Folder
	log     *slog.Logger
	traffic *traffic
	applies *applyLog
	deeds   *deedLog
	images  images
	faults  *faults
	// bootstraps counts the calls that made this node begin an etcd.
	bootstraps atomic.Int64

	mu       sync.Mutex
	hardware hardware
	boot     *boot
	// live is closed when the goroutine that lives the machine's life has ended; nil while the power is off.
	live   chan struct{}
	cancel context.CancelFunc
	// changed is closed and replaced at each change that Status may show.
	changed chan struct{}
}

// hardware is what may change about the machine itself while it exists, and survives a restart of the process.
type hardware struct {
	Machine fleet.Machine `json:"machine"`
	Powered bool          `json:"powered"`
}

// New makes the machine from its folder, or from its fleet entry if the folder is new. The power stays off.
func New(o Options) (*Node, error) {
	o.Machine.Complete()
	if err := (&fleet.Fleet{Machines: []fleet.Machine{o.Machine}}).Validate(); err != nil {
		return nil, fmt.Errorf("machine %s: %w", o.Machine.Name, err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	folder, err := disk.Open(filepath.Join(o.Dir, o.Machine.Name))
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", o.Machine.Name, err)
	}
	applies, err := openApplyLog(folder.ApplyLog())
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", o.Machine.Name, err)
	}
	deeds, err := openDeedLog(folder.DeedLog())
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", o.Machine.Name, err)
	}
	n := &Node{
		options: o, folder: folder, log: o.Log.With("machine", o.Machine.Name),
		traffic: newTraffic(), applies: applies, deeds: deeds, faults: newFaults(), changed: make(chan struct{}),
	}
	kept, err := disk.ReadHardware[hardware](folder)
	switch {
	case err != nil:
		return nil, fmt.Errorf("machine %s: %w", o.Machine.Name, err)
	case kept != nil:
		n.hardware = *kept
	default:
		n.hardware = hardware{Machine: o.Machine, Powered: o.Machine.State != fleet.StateOff}
		if o.Machine.State == fleet.StateForeign {
			if err := n.makeForeign(); err != nil {
				return nil, fmt.Errorf("machine %s: %w", o.Machine.Name, err)
			}
		}
		if err := disk.WriteHardware(folder, n.hardware); err != nil {
			return nil, fmt.Errorf("machine %s: %w", o.Machine.Name, err)
		}
	}
	return n, nil
}

// Name is the machine's name in the fleet.
func (n *Node) Name() string { return n.options.Machine.Name }

// Start switches the machine on if it was on when its folder was last used (a fleet entry starts on unless it says Off).
func (n *Node) Start() error {
	n.mu.Lock()
	powered := n.hardware.Powered
	n.mu.Unlock()
	if !powered {
		return nil
	}
	return n.PowerOn()
}

// PowerOn switches the machine on; it returns at once. It does nothing if the machine is on.
func (n *Node) PowerOn() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.live != nil {
		select {
		case <-n.live:
		default:
			return nil
		}
	}
	n.hardware.Powered = true
	if err := disk.WriteHardware(n.folder, n.hardware); err != nil {
		return fmt.Errorf("power on %s: %w", n.Name(), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.live, n.cancel = make(chan struct{}), cancel
	go n.life(ctx, n.live)
	n.touch()
	return nil
}

// PowerOff cuts the power: everything the machine runs is killed. It returns when all of it has ended.
func (n *Node) PowerOff() error {
	n.halt()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.setPowered(false)
}

// Close is a power cut that the machine does not remember: with the next process it is on again if it was on.
func (n *Node) Close() { n.halt() }

func (n *Node) halt() {
	n.mu.Lock()
	live, cancel := n.live, n.cancel
	n.mu.Unlock()
	if live == nil {
		return
	}
	cancel()
	<-live
}

// setPowered needs mu.
func (n *Node) setPowered(on bool) error {
	n.hardware.Powered = on
	n.touch()
	if err := disk.WriteHardware(n.folder, n.hardware); err != nil {
		return fmt.Errorf("remember the power of %s: %w", n.Name(), err)
	}
	return nil
}

// touch tells everyone who waits that something changed; it needs mu.
func (n *Node) touch() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// notify is touch for those who don't hold mu.
func (n *Node) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.touch()
}

// life boots the machine again and again until it is switched off.
func (n *Node) life(ctx context.Context, done chan struct{}) {
	defer close(done)
	for {
		end, err := n.bootOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			// Nothing on a real machine corresponds to this: the process itself is broken (disk full, address taken).
			n.log.Error("boot failed; the machine stays off", "error", err)
			end.powerOff = true
		}
		if end.powerOff {
			n.switchedOff(done)
			return
		}
		if !pause(ctx, time.Duration(n.machine().Timings.Reboot)) {
			return
		}
	}
}

// switchedOff is the machine's own power-off. From now on PowerOn starts a new life, even before this one's goroutine ended.
func (n *Node) switchedOff(done chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.live == done {
		n.live = nil
	}
	if err := n.setPowered(false); err != nil {
		n.log.Error("power off", "error", err)
	}
}

func (n *Node) bootOnce(ctx context.Context) (ending, error) {
	if !pause(ctx, time.Duration(n.machine().Timings.Boot)) {
		return ending{}, ctx.Err()
	}
	b, err := newBoot(ctx, n)
	if err != nil {
		return ending{}, err
	}
	n.mu.Lock()
	n.boot = b
	n.touch()
	n.mu.Unlock()
	end := b.run(ctx)
	n.mu.Lock()
	n.boot = nil
	n.touch()
	n.mu.Unlock()
	return end, nil
}

// machine is the hardware as it is now.
func (n *Node) machine() fleet.Machine {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.hardware.Machine
	m.Links, m.Disks = slices.Clone(m.Links), slices.Clone(m.Disks)
	return m
}

// current is the boot that runs now, nil if none does.
func (n *Node) current() *boot {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.boot
}

// Address is where the Talos API listens, or will once it does.
func (n *Node) Address() netip.Addr {
	if b := n.current(); b != nil {
		return b.address().Addr()
	}
	m := n.machine()
	return m.Addr()
}

// pause waits unless the context ends first; it tells whether it waited to the end.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// ErrOff tells that the machine has no power or is between two boots.
var ErrOff = errors.New("the machine is off")
