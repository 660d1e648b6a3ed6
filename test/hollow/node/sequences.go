// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/meta"

	"maesh.dev/ichor/test/hollow/facts"
	"maesh.dev/ichor/test/hollow/sequence"
	"maesh.dev/ichor/test/hollow/workload"
)

// Phases and tasks have Talos' names (Talos: v1alpha1_sequencer.go), because clients follow them in the events.

func phase(name string, tasks ...sequence.Task) sequence.Phase {
	return sequence.Phase{Name: name, Tasks: tasks}
}

func task(name string, run func(ctx context.Context) error) sequence.Task {
	return sequence.Task{Name: name, Run: run}
}

// nothing is a task that has nothing to do on a machine without hardware.
func nothing(name string) sequence.Task {
	return task(name, func(context.Context) error { return nil })
}

func (b *boot) initializePhases() []sequence.Phase {
	return []sequence.Phase{
		phase("systemRequirements", nothing("enforceKSPPRequirements")),
		phase("earlyServices", task("startEarlyServices", b.startEarlyServices)),
		phase("usb", nothing("waitForUSB")),
		phase("meta", nothing("reloadMeta")),
		phase("dashboard", nothing("startDashboard")),
		phase("config", task("loadConfig", b.loadConfig)),
	}
}

func (b *boot) startEarlyServices(ctx context.Context) error {
	for _, id := range earlyServices {
		b.startService(ctx, id)
	}
	b.refresh()
	return nil
}

// loadConfig blocks until the machine has a configuration that is complete for boot.
func (b *boot) loadConfig(ctx context.Context) error {
	if err := b.loadState(ctx); err != nil {
		return err
	}
	if !b.configured() {
		b.mu.Lock()
		if b.active == nil {
			b.hostname, b.domainname = effectiveHostname(nil, b.nodeID, b.node.options.Machine.Hostname)
		}
		b.mu.Unlock()
		b.kernelLog.printf("[talos] this machine is reachable at: %s", b.address().Addr())
		b.publish(ctx, &machine.TaskEvent{Task: maintenanceTask, Action: machine.TaskEvent_START})
	}
	b.mu.Lock()
	b.apiOpen = true
	maintenance := b.stages.stage.String() == "maintenance"
	b.mu.Unlock()
	b.refresh()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-b.complete:
	}
	if maintenance {
		b.publish(ctx, &machine.TaskEvent{Task: maintenanceTask, Action: machine.TaskEvent_STOP})
	}
	return nil
}

func (b *boot) installPhases() []sequence.Phase {
	installed, err := b.installed()
	if err != nil {
		return []sequence.Phase{phase("install", task("install", func(context.Context) error { return err }))}
	}
	staged, isStaged := b.metaValue(meta.StagedUpgradeImageRef)
	if installed != nil && !isStaged {
		return nil
	}
	if installed == nil && b.profile.RunsFromMemory && !hasInstallInstructions(b.activeConfig()) {
		return nil
	}
	install := b.install
	if isStaged {
		install = func(ctx context.Context) error { return b.installStaged(ctx, staged) }
	}
	return []sequence.Phase{
		phase("env", nothing("setUserEnvVars")),
		phase("install", task("install", install)),
		phase("meta", nothing("reloadMeta")),
		phase("saveMeta", task("flushMeta", func(context.Context) error { return b.flushMeta() })),
		phase("volumeFinalize", nothing("teardownVolumeLifecycle")),
		phase("stopEverything", task("stopAllServices", b.stopAllServices)),
		phase("kexec", nothing("kexecPrepare")),
		phase("reboot", task("reboot", b.reboot)),
	}
}

func (b *boot) bootPhases() []sequence.Phase {
	return []sequence.Phase{
		phase("memorySizeCheck", nothing("memorySizeCheck")),
		phase("diskSizeCheck", nothing("diskSizeCheck")),
		phase("env", nothing("setUserEnvVars"), nothing("waitForCARoots")),
		phase("dbus", nothing("startDBus")),
		phase("ephemeral", task("mountEphemeralPartition", b.mountEphemeral)),
		phase("udevSetup", nothing("writeUdevRules")),
		phase("userDisks", nothing("mountUserDisks")),
		phase("userSetup", nothing("writeUserFiles")),
		phase("startEverything", task("startAllServices", b.startAllServices)),
	}
}

func (b *boot) mountEphemeral(context.Context) error {
	if err := b.node.folder.PrepareEphemeral(); err != nil {
		return fmt.Errorf("mount EPHEMERAL: %w", err)
	}
	b.mu.Lock()
	b.booted = true
	b.mu.Unlock()
	b.refresh()
	return nil
}

// startAllServices starts Kubernetes' parts and waits until all services are up, for as long as Talos would.
func (b *boot) startAllServices(ctx context.Context) error {
	if _, fresh := b.metaValue(meta.Upgrade); fresh && b.node.faults.upgradedBootFails() {
		return errors.New("a service of the new system failed")
	}
	b.startService(ctx, "cri")
	b.refresh()
	if err := b.startWorkload(); err != nil {
		return err
	}
	for {
		b.node.mu.Lock()
		changed := b.node.changed
		b.node.mu.Unlock()
		if servicesUp(b.view()) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (b *boot) startWorkload() error {
	factory := b.node.options.Workload
	if factory == nil {
		return nil
	}
	m := b.node.machine()
	b.mu.Lock()
	hostname, active := b.hostname, b.active
	b.mu.Unlock()
	rt, err := factory.Start(workload.Machine{
		Name: m.Name, Address: b.address().Addr(), Hostname: hostname, TalosVersion: b.slot.Version, Config: active,
		EphemeralDir: b.node.folder.EphemeralDir(), LogDir: b.node.folder.LogDir(),
		CPUs: m.CPUs, MemoryBytes: uint64(m.Memory), MachineID: b.machineID(), SystemUUID: m.UUID, BootID: b.id,
	}, b.workloadChanged)
	if err != nil {
		return fmt.Errorf("start the workload: %w", err)
	}
	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.runtime = rt
	}
	b.mu.Unlock()
	if closed {
		stopCtx, cancel := context.WithTimeout(context.Background(), workloadStopTimeout)
		defer cancel()
		rt.Stop(stopCtx, true)
		return context.Canceled
	}
	return nil
}

// stopWorkload ends Kubernetes' parts in order.
func (b *boot) stopWorkload(ctx context.Context) {
	b.mu.Lock()
	rt := b.runtime
	b.runtime = nil
	b.mu.Unlock()
	if rt == nil {
		return
	}
	stopCtx, cancel := context.WithTimeout(ctx, workloadStopTimeout)
	defer cancel()
	rt.Stop(stopCtx, false)
	b.mu.Lock()
	var ids []string
	for _, s := range b.workload.Services {
		ids = append(ids, s.ID)
	}
	b.workload = workload.Status{}
	b.mu.Unlock()
	b.stopServices(ctx, ids...)
	b.refresh()
}

func (b *boot) stopAllServices(ctx context.Context) error {
	b.stopWorkload(ctx)
	b.stopServices(ctx, "cri", "kubelet", "etcd", "trustd", "containerd", "udevd", "auditd", "syslogd", "dashboard")
	b.refresh()
	return nil
}

func (b *boot) reboot(context.Context) error   { return sequence.EndOfBoot{} }
func (b *boot) shutdown(context.Context) error { return sequence.EndOfBoot{PowerOff: true} }

// stopPhases are what every orderly end of a boot goes through.
func (b *boot) stopPhases(kexec bool) []sequence.Phase {
	list := []sequence.Phase{
		phase("stopServices", task("stopServicesEphemeral", func(ctx context.Context) error { b.stopWorkload(ctx); return nil })),
		phase("umount", nothing("unmountPodMounts")),
		phase("unmountBind", nothing("unmountSystemDiskBindMounts")),
		phase("unmountSystem", nothing("unmountEphemeralPartition")),
		phase("volumeFinalize", nothing("teardownVolumeLifecycle")),
	}
	if kexec {
		list = append(list, phase("kexec", nothing("kexecPrepare")))
	}
	return append(list, phase("stopEverything", task("stopAllServices", b.stopAllServices)))
}

func (b *boot) rebootPhases(req *machine.RebootRequest) func() []sequence.Phase {
	return func() []sequence.Phase {
		var list []sequence.Phase
		if req.GetMode() != machine.RebootRequest_FORCE {
			list = append(list, phase("cleanup", nothing("stopAllPods")), phase("dbus", nothing("stopDBus")))
			list = append(list, b.stopPhases(req.GetMode() == machine.RebootRequest_DEFAULT)...)
		}
		return append(list, phase("reboot", task("reboot", b.reboot)))
	}
}

func (b *boot) shutdownPhases(req *machine.ShutdownRequest) func() []sequence.Phase {
	return func() []sequence.Phase {
		list := []sequence.Phase{phase("storeShutdown", nothing("storeShutdownEmergency"))}
		if !req.GetForce() {
			list = append(list, phase("drain", nothing("cordonAndDrainNode")))
		}
		list = append(list, phase("cleanup", nothing("stopAllPods")), phase("dbus", nothing("stopDBus")))
		list = append(list, b.stopPhases(false)...)
		return append(list, phase("shutdown", task("shutdown", b.shutdown)))
	}
}

// work pauses for the time that something slow takes.
func work(ctx context.Context, d time.Duration) error {
	if !pause(ctx, d) {
		return ctx.Err()
	}
	return nil
}

var errNoWorkload = errors.New("nothing runs etcd here")

// controlPlaneAddresses are where trustd may be asked: what discovery knows and the cluster's endpoint.
func controlPlaneAddresses(v facts.View) []string {
	var hosts []string
	for _, a := range v.ControlPlanes {
		hosts = append(hosts, a.String())
	}
	if v.Active == nil || v.Active.Cluster() == nil || v.Active.Cluster().Endpoint() == nil {
		return hosts
	}
	host := v.Active.Cluster().Endpoint().Hostname()
	if a, err := netip.ParseAddr(host); err == nil {
		for _, known := range v.ControlPlanes {
			if known == a {
				return hosts
			}
		}
	}
	return append(hosts, host)
}
