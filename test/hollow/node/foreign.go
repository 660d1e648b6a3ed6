// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"maesh.dev/ichor/test/hollow/disk"
)

// makeForeign puts an installation on the machine's first disk that can hold one, with the configuration of a cluster
// whose CA is thrown away: nobody can ever log in.
func (n *Node) makeForeign() error {
	// The old contract's service account key is quick to make, and nobody will ever use it.
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersion1_6)
	if err != nil {
		return fmt.Errorf("make a foreign cluster: %w", err)
	}
	m := n.hardware.Machine
	input, err := generate.NewInput("foreign", fmt.Sprintf("https://%s:6443", m.Addr()), constants.DefaultKubernetesVersion,
		generate.WithSecretsBundle(bundle))
	if err != nil {
		return fmt.Errorf("make a foreign cluster: %w", err)
	}
	cfg, err := input.Config(machine.TypeControlPlane)
	if err != nil {
		return fmt.Errorf("make a foreign cluster: %w", err)
	}
	data, err := cfg.Bytes()
	if err != nil {
		return fmt.Errorf("make a foreign cluster: %w", err)
	}
	for _, d := range m.Disks {
		if d.ReadOnly || d.CDROM || uint64(d.Size) < minSystemDisk {
			continue
		}
		installation := disk.Installation{Device: d.Device, Serial: d.Serial, WWID: d.WWID, Current: disk.Slot{Version: m.TalosVersion, Schematic: m.Schematic}}
		if err := n.folder.Install(installation, true); err != nil {
			return err
		}
		return n.folder.WriteConfig(data)
	}
	return errors.New("state Foreign: no disk is large enough for an installation")
}
