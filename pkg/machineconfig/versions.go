// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config"
)

// PlainSchematicID is the Image Factory's schematic without extensions, kernel arguments or overlay: the SHA-256 of
// "customization: {}\n".
const PlainSchematicID = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

// newestContract is the newest that the machinery in use can generate. Newer Talos versions accept older contracts.
var newestContract = config.TalosVersion1_13

// oldestContract is the first in which network settings are documents of their own, which is how approval's decisions
// are written.
var oldestContract = config.TalosVersion1_12

// Contract is the version contract to generate for: the lowest of the given Talos versions and of what the machinery
// knows. A configuration must be understood by the version that reads it in maintenance mode and by the one that is
// installed. Empty versions don't count.
func Contract(versions ...string) (*config.VersionContract, error) {
	lowest := newestContract
	for _, version := range versions {
		if version == "" {
			continue
		}
		contract, err := config.ParseContractFromVersion(version)
		if err != nil {
			return nil, fmt.Errorf("%q is no Talos version: expected the form v1.13.9", version)
		}
		if lowest.Greater(contract) {
			lowest = contract
		}
	}
	if oldestContract.Greater(lowest) {
		return nil, fmt.Errorf("version %s of Talos is too old: %s is the oldest that can be configured; boot the machine from a newer image", lowest, oldestContract)
	}
	return lowest, nil
}

// ContractOf is the contract that a machine's configuration is written for, as SettledVersions keep it; empty where Render
// says what is wrong.
func ContractOf(facts Facts) string {
	contract, err := Contract(facts.MaintenanceVersion, facts.Versions.Talos, facts.Versions.ConfigContract)
	if err != nil {
		return ""
	}
	return contract.String()
}

// checkKubernetes refuses a configuration that a node would refuse for its Kubernetes: each version of Talos runs a range of
// them, and judges already in maintenance mode, before another version is installed. Versions of Talos that the machinery
// doesn't know yet judge for themselves. Source: Talos, pkg/machinery/compatibility.
func checkKubernetes(kubernetes, maintenance, install string) error {
	if err := supported(kubernetes, maintenance); err != nil {
		return fmt.Errorf("the machine booted Talos %s, which takes no configuration with Kubernetes %s: %w; boot it from an image of another version", withV(maintenance), withV(kubernetes), err)
	}
	if err := supported(kubernetes, install); err != nil {
		return fmt.Errorf("spec.talosVersion: Talos %s, which is to be installed, doesn't run Kubernetes %s: %w; change spec.talosVersion or spec.kubernetesVersion of the cluster", withV(install), withV(kubernetes), err)
	}
	return nil
}

// supported tells whether a version of Talos runs a version of Kubernetes; what can't be told is.
func supported(kubernetes, talos string) error {
	contract, err := config.ParseContractFromVersion(talos)
	if err != nil || contract.Greater(newestContract) {
		return nil //nolint:nilerr // no version, or one that is not known here
	}
	parsed, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: withV(talos)})
	if err != nil {
		return nil //nolint:nilerr // a development version
	}
	wanted, err := compatibility.ParseKubernetesVersion(strings.TrimPrefix(kubernetes, "v"))
	if err != nil {
		return fmt.Errorf("%q is no Kubernetes version: expected the form v1.36.6", kubernetes)
	}
	return wanted.SupportedWith(parsed)
}

// InstallerImage is the reference of the installer: <registry>/installer[-secureboot]/<schematic>:<version>.
// Source: Talos Image Factory, registry front end.
func InstallerImage(registry, schematicID, talosVersion string, secureBoot bool) string {
	name := "installer"
	if secureBoot {
		name = "installer-secureboot"
	}
	return fmt.Sprintf("%s/%s/%s:%s", strings.TrimSuffix(registry, "/"), name, schematicID, withV(talosVersion))
}

func withV(version string) string { return "v" + strings.TrimPrefix(version, "v") }
