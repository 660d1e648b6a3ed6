// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"k8s.io/apimachinery/pkg/util/version"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	// minorsAtOnce is how many minor versions an upgrade may go up. It is for versions that the machinery in use doesn't
	// know. Source: Talos, pkg/machinery/compatibility: 1.13 installs over 1.11 and later, 1.14 over 1.12 and later.
	minorsAtOnce = 2
	// Talos 1.n runs Kubernetes 1.(n+oldestKubernetes) to 1.(n+newestKubernetes), likewise: 1.13 runs 1.31 to 1.36.
	oldestKubernetes, newestKubernetes = 18, 23
)

// CheckUpgradePath refuses an upgrade that Talos' installer would refuse, which is only found out on the machine, and one
// to an earlier version, which may not be able to read what the later one wrote.
func CheckUpgradePath(from, to string) error {
	source, err := version.ParseSemantic(from)
	if err != nil {
		return fmt.Errorf("%q is no Talos version: expected the form v1.13.9", from)
	}
	target, err := version.ParseSemantic(to)
	if err != nil {
		return fmt.Errorf("%q is no Talos version: expected the form v1.13.9", to)
	}
	if target.LessThan(source) {
		return fmt.Errorf("version %s of Talos is earlier than %s; a machine isn't taken back to an earlier version", withV(to), withV(from))
	}
	if known(to) && known(from) {
		host, hostErr := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: withV(from)})
		next, nextErr := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: withV(to)})
		if hostErr == nil && nextErr == nil {
			if err := next.UpgradeableFrom(host); err != nil {
				return fmt.Errorf("%w; upgrade to a version in between first", err)
			}
			return nil
		}
	}
	if source.Major() != target.Major() || target.Minor()-source.Minor() > minorsAtOnce {
		return fmt.Errorf("version %s of Talos can't be installed over %s: at most %d minor versions are skipped at once; upgrade to a version in between first", withV(to), withV(from), minorsAtOnce)
	}
	return nil
}

// CheckKubernetesOn refuses a version of Kubernetes that a version of Talos doesn't run.
func CheckKubernetesOn(kubernetes, talos string) error {
	if known(talos) {
		return supported(kubernetes, talos)
	}
	runs, err := version.ParseGeneric(kubernetes)
	if err != nil {
		return fmt.Errorf("%q is no Kubernetes version: expected the form v1.36.6", kubernetes)
	}
	on, err := version.ParseSemantic(talos)
	if err != nil {
		return fmt.Errorf("%q is no Talos version: expected the form v1.13.9", talos)
	}
	if oldest, newest := on.Minor()+oldestKubernetes, on.Minor()+newestKubernetes; runs.Minor() < oldest || runs.Minor() > newest {
		return fmt.Errorf("version of Kubernetes %s is not supported by Talos %s, which runs 1.%d to 1.%d", kubernetes, withV(talos), oldest, newest)
	}
	return nil
}

// known tells whether the machinery in use knows a version of Talos.
func known(talos string) bool {
	contract, err := config.ParseContractFromVersion(talos)
	return err == nil && !contract.Greater(newestContract)
}

// InstallerFor is the installer image of a machine that is to have some versions.
func InstallerFor(cluster *v1alpha1.TalosCluster, inventory *v1alpha1.MachineInventory, versions v1alpha1.SettledVersions) string {
	secureBoot := cluster.Spec.Hardening.SecureBoot || inventory != nil && inventory.SecureBoot
	return InstallerImage(cluster.Spec.Install.Registry, versions.SchematicID, versions.Talos, secureBoot)
}
