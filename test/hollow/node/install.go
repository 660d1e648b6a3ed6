// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block/blockhelpers"
	"github.com/siderolabs/talos/pkg/machinery/meta"

	"maesh.dev/ichor/test/hollow/disk"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/profile"
)

// install writes Talos to the disk that the configuration chooses, and with it STATE.
func (b *boot) install(ctx context.Context) error {
	b.mu.Lock()
	cfg, persistent := b.active, b.persistent
	b.mu.Unlock()
	if cfg == nil || cfg.Machine() == nil || cfg.Machine().Install() == nil {
		return fmt.Errorf("install: %w", errNoConfig)
	}
	target, err := b.installDisk(ctx, cfg)
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	if err := b.writeSystem(ctx, target, cfg.Machine().Install().Image(), true); err != nil {
		return err
	}
	if persistent != nil {
		if err := b.persist(persistent); err != nil {
			return fmt.Errorf("install: write the configuration: %w", err)
		}
	}
	return nil
}

// hasInstallInstructions tells whether a configuration names a disk to install on.
func hasInstallInstructions(cfg config.Provider) bool {
	if cfg == nil || cfg.RawV1Alpha1() == nil || cfg.Machine() == nil {
		return false
	}
	expression, err := cfg.Machine().Install().DiskMatchExpression()
	return cfg.Machine().Install().Disk() != "" || expression != nil || err != nil
}

// minSystemDisk is the least that Talos' partitions need; with less the installer fails.
const minSystemDisk = 3 << 30

// writeSystem is the installer: it takes its time, then the disk boots the image's version.
func (b *boot) writeSystem(ctx context.Context, target fleet.Disk, image string, fresh bool) error {
	slot, err := slotOf(image)
	if err != nil {
		return fmt.Errorf("install %s: %w", image, err)
	}
	if target.ReadOnly || target.CDROM {
		return fmt.Errorf("install %s: disk %s is read-only", image, target.Device)
	}
	if uint64(target.Size) < minSystemDisk {
		return fmt.Errorf("install %s: disk %s is too small", image, target.Device)
	}
	b.kernelLog.printf("[talos] installing Talos to disk %s", target.Device)
	if err := b.node.faults.installError(image); err != nil {
		return fmt.Errorf("install %s: %w", image, err)
	}
	if err := work(ctx, b.installTime()); err != nil {
		return err
	}
	slot.Schematic = b.node.faults.schematic(slot.Schematic)
	next := disk.Installation{Device: target.Device, Serial: target.Serial, WWID: target.WWID, Current: slot}
	if !fresh {
		current, err := b.installed()
		if err != nil {
			return err
		}
		if current == nil {
			return errors.New("install: the system disk is gone")
		}
		next.Previous = &current.Current
	}
	if err := b.node.folder.Install(next, fresh); err != nil {
		return fmt.Errorf("install %s: %w", image, err)
	}
	if fresh {
		if err := b.node.folder.WriteIdentity(b.identityNow()); err != nil {
			return err
		}
	}
	b.kernelLog.printf("[talos] installation of %s complete", slot.Version)
	b.refresh()
	return nil
}

// upgradeSystem installs over the running system, and writes down that it did, or why not.
func (b *boot) upgradeSystem(ctx context.Context, image string) error {
	err := b.installOver(ctx, image)
	deed := Deed{What: DeedInstaller, Image: image}
	if err != nil {
		deed.Error = err.Error()
	}
	b.did(deed)
	return err
}

// installOver installs over the running system. Until the new one was ready once, the tag in META makes a failed boot
// go back to the old one.
func (b *boot) installOver(ctx context.Context, image string) error {
	target, err := b.currentSystemDisk()
	if err != nil {
		return err
	}
	slot, err := slotOf(image)
	if err != nil {
		return fmt.Errorf("upgrade to %s: %w", image, err)
	}
	next, err := profile.ForVersion(slot.Version)
	if err != nil {
		return fmt.Errorf("upgrade to %s: %w", image, err)
	}
	if err := next.UpgradeableFrom(b.slot.Version); err != nil {
		return fmt.Errorf("pre-flight checks failed: %w", err)
	}
	if err := b.writeSystem(ctx, target, image, false); err != nil {
		return err
	}
	return b.setMeta(meta.Upgrade, "A")
}

func (b *boot) currentSystemDisk() (fleet.Disk, error) {
	installed, err := b.installed()
	if err != nil {
		return fleet.Disk{}, err
	}
	m := b.node.machine()
	for _, d := range m.Disks {
		if installed != nil && d.Device == installed.Device {
			return d, nil
		}
	}
	return fleet.Disk{}, errors.New("the system disk was not found")
}

// installStaged installs what a staged upgrade left in META, once.
func (b *boot) installStaged(ctx context.Context, image string) error {
	for _, tag := range []uint8{meta.StagedUpgradeImageRef, meta.StagedUpgradeInstallOptions} {
		if err := b.dropMeta(tag); err != nil {
			return err
		}
	}
	return b.upgradeSystem(ctx, image)
}

// installDisk is the first disk that the selector matches, or the one that is named; the selector wins.
func (b *boot) installDisk(ctx context.Context, cfg config.Provider) (fleet.Disk, error) {
	expression, err := cfg.Machine().Install().DiskMatchExpression()
	if err != nil {
		return fleet.Disk{}, fmt.Errorf("install disk selector is invalid: %w", err)
	}
	device := cfg.Machine().Install().Disk()
	if expression != nil {
		matched, err := blockhelpers.MatchDisks(ctx, b.store.State(), expression)
		if err != nil {
			return fleet.Disk{}, err
		}
		if len(matched) == 0 {
			return fleet.Disk{}, fmt.Errorf("no disk matched the expression: %s", expression)
		}
		device = matched[0].TypedSpec().DevPath
	}
	return b.diskByPath(device)
}

// diskByPath finds a disk by its device or one of its stable links.
func (b *boot) diskByPath(device string) (fleet.Disk, error) {
	m := b.node.machine()
	for _, d := range m.Disks {
		if d.Device == device || (strings.HasPrefix(device, "/dev/disk/") && d.Serial != "" && strings.HasSuffix(path.Base(device), "_"+d.Serial)) {
			return d, nil
		}
	}
	return fleet.Disk{}, fmt.Errorf("disk %q does not exist", device)
}

// slotOf reads version and schematic from an installer image: factory.talos.dev/metal-installer/<schematic>:v1.13.9.
func slotOf(image string) (disk.Slot, error) {
	name, _, _ := strings.Cut(image, "@")
	slash := strings.LastIndex(name, "/")
	colon := strings.LastIndex(name, ":")
	if colon <= slash {
		return disk.Slot{}, fmt.Errorf("image %q has no tag to tell the version from", image)
	}
	version := name[colon+1:]
	if _, err := profile.ForVersion(version); err != nil {
		return disk.Slot{}, err
	}
	slot := disk.Slot{Version: version, Image: image}
	if id := name[slash+1 : colon]; len(id) == schematicLength {
		slot.Schematic = id
	}
	return slot, nil
}

// schematicLength is that of an Image Factory id: a SHA-256 in hex.
const schematicLength = 64
