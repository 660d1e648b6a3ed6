// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// ApprovalWarnings tells of what is allowed in an approval and may be unwise. Each is about a field, and short.
func ApprovalWarnings(machine *ichor.TalosMachine, facts ApprovalFacts) []string {
	if machine.Spec.ApprovalState != ichor.ApprovalApproved || machine.Spec.Origin == ichor.MachineAdopted {
		return nil
	}
	warnings := diskWarnings(machine)
	warnings = append(warnings, labelWarnings(machine)...)
	cluster := facts.Cluster
	if cluster == nil {
		return warnings
	}
	if inventory := machine.Status.Inventory; inventory != nil && cluster.Spec.Hardening.SecureBoot && !inventory.SecureBoot {
		warnings = append(warnings, "status.inventory.secureBoot: the cluster demands SecureBoot, the machine booted without")
	}
	warnings = append(warnings, lockdownWarnings(machine.Status.Inventory, cluster)...)
	if reported, wanted := machine.Status.SchematicID, cluster.Spec.Install.SchematicID; reported != "" && wanted != "" && reported != wanted {
		warnings = append(warnings, fmt.Sprintf("status.schematicID: the machine keeps its own schematic %.8s…, not the cluster's %.8s…", reported, wanted))
	}
	return append(warnings, rangeWarnings(machine, cluster)...)
}

// lockdownWarnings tells of a machine that boots an image that doesn't lock the kernel down: no configuration changes that.
func lockdownWarnings(inventory *ichor.MachineInventory, cluster *ichor.TalosCluster) []string {
	modes := []ichor.KernelLockdown{ichor.KernelLockdownNone, ichor.KernelLockdownIntegrity, ichor.KernelLockdownConfidentiality}
	want := cluster.Spec.Hardening.KernelLockdown
	if inventory == nil || !inventory.UnifiedKernelImage || cluster.Spec.Hardening.SecureBoot ||
		slices.Index(modes, inventory.KernelLockdown) >= slices.Index(modes, want) {
		return nil
	}
	return []string{fmt.Sprintf("status.inventory.kernelLockdown: add lockdown=%s to extraKernelArgs of the machine's schematic", want)}
}

func diskWarnings(machine *ichor.TalosMachine) []string {
	var warnings []string
	for i, disk := range machine.Spec.Disks {
		found, _ := seenDisk(disk.Match, machine.Status.Inventory, nil)
		if found == nil || disk.Role == ichor.DiskUnused {
			continue
		}
		at := fmt.Sprintf("spec.disks[%d]: %s ", i, found.Device)
		if found.Transport == "usb" {
			warnings = append(warnings, at+"is attached by USB")
		}
		if found.Rotational && (disk.Role == ichor.DiskSystem || disk.Role == ichor.DiskEphemeral) {
			warnings = append(warnings, at+"is a spinning disk; etcd and images want a faster one")
		}
		if found.Signature != "" && disk.Role != ichor.DiskStorage {
			warnings = append(warnings, at+fmt.Sprintf("holds data (%s), which will be lost", found.Signature))
		}
	}
	return warnings
}

// labelWarnings tells of labels that a worker's kubelet isn't allowed to set on its own Node.
// Source: Kubernetes, plugin/pkg/admission/noderestriction.
func labelWarnings(machine *ichor.TalosMachine) []string {
	if machine.Spec.Role != ichor.RoleWorker {
		return nil
	}
	var warnings []string
	for label := range machine.Spec.NodeLabels {
		prefix, _, found := strings.Cut(label, "/")
		if !found || !(prefix == "kubernetes.io" || prefix == "k8s.io" || strings.HasSuffix(prefix, ".kubernetes.io") || strings.HasSuffix(prefix, ".k8s.io")) {
			continue
		}
		if prefix == "node.kubernetes.io" || prefix == "kubelet.kubernetes.io" || prefix == "topology.kubernetes.io" {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("spec.nodeLabels[%s]: Kubernetes doesn't let a worker set this label on its own Node", label))
	}
	slices.Sort(warnings)
	return warnings
}

// rangeWarnings tells of static addresses within the cluster's own ranges.
func rangeWarnings(machine *ichor.TalosMachine, cluster *ichor.TalosCluster) []string {
	if machine.Spec.Network == nil {
		return nil
	}
	var warnings []string
	for i, text := range machine.Spec.Network.Addresses {
		address, err := netip.ParsePrefix(text)
		if err != nil {
			continue
		}
		for _, cidr := range slices.Concat(cluster.Spec.Network.PodCIDRs, cluster.Spec.Network.ServiceCIDRs) {
			if prefix, err := netip.ParsePrefix(cidr); err == nil && prefix.Contains(address.Addr()) {
				warnings = append(warnings, fmt.Sprintf("spec.network.addresses[%d]: %s lies in the cluster's own range %s", i, text, cidr))
			}
		}
	}
	return warnings
}
