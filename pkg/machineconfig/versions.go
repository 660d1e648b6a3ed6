// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"fmt"
	"strings"

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
