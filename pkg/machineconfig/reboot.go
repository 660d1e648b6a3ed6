// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
)

// immediate are the fields of Talos' first document that a running machine takes up at once; all others need a reboot.
// Source: Talos 1.13, internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_runtime.go (CanApplyImmediate).
var immediate = paths(
	"debug", "cluster",
	"machine.ca", "machine.acceptedCAs", "machine.time", "machine.certSANs", "machine.install", "machine.network", "machine.sysfs", "machine.sysctls",
	"machine.logging", "machine.controlPlane", "machine.kubelet", "machine.kernel", "machine.registries", "machine.pods", "machine.seccompProfiles",
	"machine.nodeAnnotations", "machine.nodeLabels", "machine.nodeTaints",
	"machine.features.kubernetesTalosAPIAccess", "machine.features.kubePrism", "machine.features.hostDNS", "machine.features.imageCache",
	"machine.features.nodeAddressSortAlgorithm",
)

// lateFrom114 are fields that Talos 1.14 accepts at once, as it accepts everything, but that take effect at a reboot: its
// nodes never say so. Source: Talos' documentation of 1.14, "Editing Machine Configuration". Etcd can't be restarted
// through the API, so what its process is started with waits for a reboot too.
var lateFrom114 = paths("cluster.etcd", "machine.kernel.modules")

// lateDocuments are fields of other documents that take effect at a reboot, by kind. Source: as above. Up to 1.13 no
// document besides the first one ever makes a machine reboot, though what it says may count later.
var lateDocuments = map[string][][]string{
	"EnvironmentConfig": {nil},
	"VolumeConfig":      paths("encryption"),
	"UserVolumeConfig":  paths("encryption"),
	"RawVolumeConfig":   paths("encryption"),
	"SwapVolumeConfig":  paths("encryption"),
}

func paths(texts ...string) [][]string {
	var all [][]string
	for _, text := range texts {
		all = append(all, strings.Split(text, "."))
	}
	return all
}

// from114 is the first contract in which a node never says that a change needs a reboot.
var from114 = &config.VersionContract{Major: 1, Minor: 14}

// NeedsReboot are those of the differences between what a machine runs and what it should run that it takes up at a reboot
// only. The version is that of the Talos that runs; one that can't be read counts as the newest.
func NeedsReboot(differences []Difference, talosVersion string) []Difference {
	contract, err := config.ParseContractFromVersion(talosVersion)
	newest := err != nil || !from114.Greater(contract)
	var late []Difference
	for _, difference := range differences {
		if needsReboot(difference, newest) {
			late = append(late, difference)
		}
	}
	return late
}

func needsReboot(difference Difference, newest bool) bool {
	under := func(path []string) bool { return difference.Path.under(path) }
	if difference.Document != MainDocument {
		kind, _, _ := strings.Cut(difference.Document, "/")
		return newest && slices.ContainsFunc(lateDocuments[kind], under)
	}
	if !slices.ContainsFunc(immediate, under) {
		return true
	}
	return newest && slices.ContainsFunc(lateFrom114, under)
}
