// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"k8s.io/apimachinery/pkg/api/resource"

	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// inventory is the machine's hardware; nil if it has read none yet.
func (o observation) inventory() *v1alpha1.MachineInventory {
	disks, links := o.diskInventory(), o.linkInventory()
	if o.system == nil && (len(disks) == 0 || len(links) == 0) {
		return nil
	}
	inventory := &v1alpha1.MachineInventory{
		CPU:    o.cpu(),
		Memory: *resource.NewQuantity(o.memoryBytes(), resource.BinarySI),
		Disks:  disks,
		Links:  links,
	}
	if o.system != nil {
		inventory.Manufacturer = clean(o.system.TypedSpec().Manufacturer)
		inventory.ProductName = clean(o.system.TypedSpec().ProductName)
	}
	if o.security != nil {
		inventory.SecureBoot, inventory.UnifiedKernelImage = o.security.TypedSpec().SecureBoot, o.security.TypedSpec().BootedWithUKI
	}
	if o.cmdline != nil {
		inventory.KernelLockdown = lockdown(o.cmdline.TypedSpec().Cmdline)
	}
	return inventory
}

// lockdown is what a kernel's command line has it lock down: the strictest that is given, because a lockdown is never
// loosened. Source: Linux, security/lockdown/lockdown.c.
func lockdown(cmdline string) v1alpha1.KernelLockdown {
	arguments := strings.Fields(cmdline)
	for _, mode := range []v1alpha1.KernelLockdown{v1alpha1.KernelLockdownConfidentiality, v1alpha1.KernelLockdownIntegrity} {
		if slices.Contains(arguments, "lockdown="+string(mode)) {
			return mode
		}
	}
	return v1alpha1.KernelLockdownNone
}

// cpu sums the processors up. Empty sockets are listed by firmware without cores and without a name.
func (o observation) cpu() v1alpha1.CPUInventory {
	var cpu v1alpha1.CPUInventory
	var cores, threads uint64
	for _, processor := range o.processors {
		spec := processor.TypedSpec()
		model := clean(spec.ProductName)
		if spec.CoreCount == 0 && model == "" {
			continue
		}
		cpu.Sockets++
		cpu.Model = cmp.Or(cpu.Model, model)
		cores += uint64(spec.CoreCount)
		threads += uint64(spec.ThreadCount)
	}
	cpu.Cores = int32(min(cores, math.MaxInt32))
	cpu.Threads = int32(min(threads, math.MaxInt32))
	return cpu
}

// memoryBytes is the sum of the memory modules, which are given in MiB; empty slots are listed with size 0.
func (o observation) memoryBytes() int64 {
	var mebibytes int64
	for _, module := range o.memory {
		mebibytes += int64(module.TypedSpec().Size)
	}
	return mebibytes << 20
}

// virtualDisks start the names of block devices with no disk behind them.
var virtualDisks = []string{"loop", "ram", "zram", "dm-", "nbd"}

func (o observation) diskInventory() []v1alpha1.DiskInventory {
	signatures := map[string]string{}
	for _, volume := range o.volumes {
		if spec := volume.TypedSpec(); spec.Type == "disk" {
			signatures[volume.Metadata().ID()] = clean(spec.Name)
		}
	}
	var out []v1alpha1.DiskInventory
	for _, disk := range o.disks {
		id := disk.Metadata().ID()
		if slices.ContainsFunc(virtualDisks, func(prefix string) bool { return strings.HasPrefix(id, prefix) }) {
			continue
		}
		spec := disk.TypedSpec()
		out = append(out, v1alpha1.DiskInventory{
			Device:     devicePath(disk),
			Size:       *resource.NewQuantity(int64(min(spec.Size, math.MaxInt64)), resource.BinarySI),
			Model:      clean(spec.Model),
			Serial:     clean(spec.Serial),
			WWID:       clean(spec.WWID),
			Transport:  clean(spec.Transport),
			BusPath:    clean(spec.BusPath),
			Rotational: spec.Rotational,
			ReadOnly:   spec.Readonly,
			CDROM:      spec.CDROM,
			Signature:  signatures[id],
		})
	}
	return sorted(out, maxDisks, func(disk v1alpha1.DiskInventory) string { return disk.Device })
}

func devicePath(disk *block.Disk) string {
	return cmp.Or(clean(disk.TypedSpec().DevPath), "/dev/"+clean(disk.Metadata().ID()))
}

func (o observation) linkInventory() []v1alpha1.LinkInventory {
	var out []v1alpha1.LinkInventory
	for _, link := range o.links {
		spec := link.TypedSpec()
		if !spec.Physical() {
			continue
		}
		out = append(out, v1alpha1.LinkInventory{
			Name:          clean(link.Metadata().ID()),
			PermanentMAC:  identity.NormalizeMAC(spec.PermanentAddr.String()),
			MAC:           identity.NormalizeMAC(spec.HardwareAddr.String()),
			SpeedMegabits: int32(max(0, min(spec.SpeedMegabits, math.MaxInt32))),
			Up:            spec.LinkState,
			Addresses:     o.linkAddresses(link),
		})
	}
	return sorted(out, maxLinks, func(link v1alpha1.LinkInventory) string { return link.Name })
}

// sorted orders items by key, drops those whose key was there before (keys are unique in the API) and bounds their
// number.
func sorted[T any](items []T, limit int, key func(T) string) []T {
	slices.SortStableFunc(items, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	items = slices.CompactFunc(items, func(a, b T) bool { return key(a) == key(b) })
	return items[:min(len(items), limit)]
}
