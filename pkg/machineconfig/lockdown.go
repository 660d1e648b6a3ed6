// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"fmt"
	"slices"

	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// lockdowns are the modes of a kernel's lockdown, the stricter ones later.
var lockdowns = []v1alpha1.KernelLockdown{v1alpha1.KernelLockdownNone, v1alpha1.KernelLockdownIntegrity, v1alpha1.KernelLockdownConfidentiality}

// lockdownArgument is the kernel's argument for a mode. Source: Linux, security/lockdown/lockdown.c.
func lockdownArgument(mode v1alpha1.KernelLockdown) string { return "lockdown=" + string(mode) }

// rendersLockdown tells whether Talos takes the mode from a machine's configuration. It does where GRUB boots the kernel,
// if the arguments aren't taken from the image, as they are by default since 1.12 (install.grubUseUKICmdline); those that
// the schematic has would be lost, so this is for the plain one, which has none. SecureBoot images are locked down
// anyway. Source: Talos, pkg/machinery/config/types/v1alpha1 (v1alpha1_validation.go) and pkg/machinery/kernel
// (SecureBootArgs).
func rendersLockdown(cluster *v1alpha1.TalosCluster, facts Facts, secureBoot bool) bool {
	return cluster.Spec.Hardening.KernelLockdown != v1alpha1.KernelLockdownNone && !secureBoot && facts.Inventory != nil &&
		!facts.Inventory.UnifiedKernelImage && facts.Versions.SchematicID == PlainSchematicID
}

// setLockdown writes the mode into the arguments that the installer gives GRUB.
func setLockdown(v1 *talosv1alpha1.Config, mode v1alpha1.KernelLockdown) {
	fromImage := false
	v1.MachineConfig.MachineInstall.InstallGrubUseUKICmdline = &fromImage
	//lint:ignore SA1019 the image that is better for this can't be had: there are machines with the plain one
	v1.MachineConfig.MachineInstall.InstallExtraKernelArgs = append(v1.MachineConfig.MachineInstall.InstallExtraKernelArgs, lockdownArgument(mode))
}

// LockdownAdvice says what keeps a machine's kernel from being locked down as its cluster asks for, and what to do; empty
// where it is locked down, or nothing is asked for.
func LockdownAdvice(cluster *v1alpha1.TalosCluster, inventory *v1alpha1.MachineInventory, versions v1alpha1.SettledVersions) string {
	want := cluster.Spec.Hardening.KernelLockdown
	if inventory == nil || slices.Index(lockdowns, inventory.KernelLockdown) >= slices.Index(lockdowns, want) {
		return ""
	}
	have := "without lockdown"
	if inventory.KernelLockdown != v1alpha1.KernelLockdownNone {
		have = "with " + lockdownArgument(inventory.KernelLockdown)
	}
	facts := Facts{Inventory: inventory, Versions: versions}
	if rendersLockdown(cluster, facts, cluster.Spec.Hardening.SecureBoot || inventory.SecureBoot) {
		return fmt.Sprintf("the kernel was booted %s; %s is in the machine's configuration and counts from the next installation or upgrade", have, lockdownArgument(want))
	}
	return fmt.Sprintf("the kernel was booted %s, and takes its arguments from the image: add %s to customization.extraKernelArgs of the schematic (it has %.12s now), or boot with SecureBoot, and install or upgrade with that image",
		have, lockdownArgument(want), versions.SchematicID)
}
