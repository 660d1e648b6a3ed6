// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"maesh.dev/ichor/test/hollow/cosi"
	"maesh.dev/ichor/test/hollow/disk"
	"maesh.dev/ichor/test/hollow/events"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/pki"
	"maesh.dev/ichor/test/hollow/profile"
	"maesh.dev/ichor/test/hollow/sequence"
	"maesh.dev/ichor/test/hollow/workload"
)

// ending tells how a boot ended.
type ending struct {
	// powerOff: the machine switched itself off; else it starts again.
	powerOff bool
}

// boot is one life of the machine's memory, from power (or kexec) to the next.
type boot struct {
	node    *Node
	log     *slog.Logger
	id      string
	started time.Time
	// slot is what booted: the disk's, or the boot media's on a machine where nothing is installed.
	slot      disk.Slot
	profile   *profile.Profile
	ring      *events.Ring
	store     *cosi.Store
	authority *pki.Maintenance
	sequences *sequence.Controller
	api       *api
	kernelLog *kernelLog

	ctx    context.Context //nolint:containedctx // the boot's own life, which its goroutines follow
	cancel context.CancelFunc
	work   sync.WaitGroup
	end    chan ending

	// complete is closed when a configuration that is complete for boot became active.
	complete chan struct{}
	// applying holds a token while an ApplyConfiguration runs.
	applying chan struct{}
	// installing holds a token while the LifecycleService installs or upgrades.
	installing chan struct{}
	// refreshing serializes the computation of the resources.
	refreshing sync.Mutex

	mu         sync.Mutex
	status     runtime.MachineStatusSpec
	stages     stageTracker
	active     config.Provider
	persistent config.Provider
	rollback   context.CancelFunc
	rebooting  bool
	closed     bool
	orderly    bool
	booted     bool
	apiOpen    bool
	hostname   string
	domainname string
	nodeID     string
	meta       map[uint8]string
	seen       []netip.Prefix
	services   map[string]service
	runtime    workload.Runtime
	workload   workload.Status
}

func newBoot(parent context.Context, n *Node) (*boot, error) {
	m := n.machine()
	installed, err := n.systemDisk(m)
	if err != nil {
		return nil, err
	}
	b := &boot{
		node: n, id: uuid.NewString(), started: time.Now(), end: make(chan ending, 1), complete: make(chan struct{}),
		applying: make(chan struct{}, 1), installing: make(chan struct{}, 1), services: map[string]service{},
		slot: disk.Slot{Version: m.TalosVersion, Schematic: m.Schematic},
	}
	if installed != nil {
		b.slot = installed.Current
	}
	b.log = n.log.With("boot", b.id[:8])
	if b.profile, err = profile.ForVersion(b.slot.Version); err != nil {
		return nil, err
	}
	if b.meta, err = n.folder.Meta(); err != nil {
		return nil, fmt.Errorf("read META: %w", err)
	}
	if b.authority, err = pki.NewMaintenance(); err != nil {
		return nil, err
	}
	b.ctx, b.cancel = context.WithCancel(parent)
	if b.store, err = cosi.NewStore(b.ctx, b.profile); err != nil {
		b.cancel()
		return nil, err
	}
	b.ring = events.NewRing()
	b.kernelLog = newKernelLog(b.started)
	b.sequences = sequence.NewController(b.publish)
	b.api = newAPI(b)
	return b, nil
}

// systemDisk is the installation on a disk that is really there.
func (n *Node) systemDisk(m fleet.Machine) (*disk.Installation, error) {
	installed, err := n.folder.Installed()
	if err != nil {
		return nil, fmt.Errorf("read the system disk: %w", err)
	}
	if installed == nil {
		return nil, nil
	}
	for _, d := range m.Disks {
		if d.Device == installed.Device && d.Serial == installed.Serial && d.WWID == installed.WWID {
			return installed, nil
		}
	}
	return nil, nil
}

// run lives the boot to its end; a canceled context is a power cut.
func (b *boot) run(ctx context.Context) ending {
	defer b.cancel()
	b.kernelLog.printf("Linux version 6.18.0-talos")
	b.kernelLog.printf("[talos] task machined: Talos %s", b.slot.Version)
	b.did(Deed{What: DeedBoot, Version: b.slot.Version})
	b.spawn(b.api.loop)
	b.spawn(b.main)
	stopWatch := b.node.options.Discovery.watch(b.discovered)
	defer stopWatch()
	end, cut := ending{}, false
	select {
	case <-ctx.Done():
		cut = true
	case end = <-b.end:
	}
	b.mu.Lock()
	b.closed, b.orderly = true, !cut
	rt, rollback := b.runtime, b.rollback
	b.runtime = nil
	b.mu.Unlock()
	if rollback != nil {
		rollback()
	}
	b.cancel()
	b.node.options.Discovery.fallSilent(b.node.Name())
	if rt != nil {
		// An orderly stop already happened in the sequence; what is left at the end of a boot is killed with it.
		stopCtx, cancel := context.WithTimeout(context.Background(), workloadStopTimeout)
		rt.Stop(stopCtx, true)
		cancel()
	}
	b.work.Wait()
	b.log.Info("boot ended", "powerCut", cut, "powerOff", end.powerOff)
	return end
}

// isOrderly tells whether the boot ended by itself, not by a power cut.
func (b *boot) isOrderly() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.orderly
}

// workloadStopTimeout bounds the orderly stop of etcd and the kube-apiserver.
const workloadStopTimeout = 30 * time.Second

// spawn runs f until the boot ends; after the end nothing new starts.
func (b *boot) spawn(f func(ctx context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.work.Add(1)
	go func() {
		defer b.work.Done()
		f(b.ctx)
	}()
}

// finish ends the boot; only the first call counts.
func (b *boot) finish(e ending) {
	select {
	case b.end <- e:
	default:
	}
}

// main is machined's: initialize, install if need be, boot (Talos: internal/app/machined/main.go).
func (b *boot) main(ctx context.Context) {
	b.refresh()
	steps := []struct {
		name   sequence.Name
		phases func() []sequence.Phase
	}{
		{sequence.Initialize, b.initializePhases},
		{sequence.Install, b.installPhases},
		{sequence.Boot, b.bootPhases},
	}
	for _, step := range steps {
		err := b.sequences.Run(ctx, step.name, false, step.phases)
		if errors.Is(err, context.Canceled) {
			// Pushed aside by another sequence, which decides what comes next.
			return
		}
		if err != nil {
			b.fail(ctx, step.name, err)
			return
		}
	}
}

// fail is what machined does with a sequence's error: a reboot is done, anything else reverts a fresh upgrade, waits and
// reboots.
func (b *boot) fail(ctx context.Context, name sequence.Name, err error) {
	var end sequence.EndOfBoot
	if errors.As(err, &end) {
		b.finish(ending{powerOff: end.PowerOff})
		return
	}
	if ctx.Err() != nil || errors.Is(err, sequence.ErrLocked) || errors.Is(err, context.Canceled) {
		return
	}
	b.log.Error("sequence failed", "sequence", string(name), "error", err)
	b.kernelLog.printf("[talos] %s sequence: failed: %v", name, err)
	if revertErr := b.revertFreshUpgrade(); revertErr != nil {
		b.log.Error("revert the bootloader", "error", revertErr)
	}
	if !pause(ctx, time.Duration(b.node.machine().Timings.FatalPause)) {
		return
	}
	b.finish(ending{powerOff: name == sequence.Shutdown})
}

// runSequence runs a sequence that an API call asked for, in the background as Talos does.
func (b *boot) runSequence(actor string, name sequence.Name, force bool, phases func() []sequence.Phase) {
	b.spawn(func(ctx context.Context) {
		if actor != "" {
			ctx = events.WithActor(ctx, actor)
		}
		if err := b.sequences.Run(ctx, name, force, phases); err != nil {
			b.fail(ctx, name, err)
		}
	})
}

// revertFreshUpgrade goes back to the previous system if the running one never became ready since it was installed:
// META's tag Upgrade is set by the upgrade and dropped when the machine is ready (Talos: internal/app/machined/revert.go).
func (b *boot) revertFreshUpgrade() error {
	b.mu.Lock()
	_, fresh := b.meta[meta.Upgrade]
	b.mu.Unlock()
	if !fresh {
		return nil
	}
	if err := b.revert(); err != nil {
		return err
	}
	return b.dropMeta(meta.Upgrade)
}

// revert swaps the two installations of the A/B pair.
func (b *boot) revert() error {
	installed, err := b.node.folder.Installed()
	if err != nil {
		return err
	}
	if installed == nil || installed.Previous == nil {
		return errors.New("no previous installation to boot")
	}
	previous := *installed.Previous
	current := installed.Current
	installed.Current, installed.Previous = previous, &current
	return b.node.folder.Install(*installed, false)
}
