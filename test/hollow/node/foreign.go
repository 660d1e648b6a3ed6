// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"time"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"maesh.dev/ichor/test/hollow/disk"
)

// makeForeign puts an installation on the machine's first disk that can hold one, with the configuration of a cluster of
// its own. Nobody has that cluster's CA but the machine itself, which is a control plane.
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

// accessTTL is how long what Talosconfig gives is good for.
const accessTTL = time.Hour

// Talosconfig is a client configuration of an administrator of the cluster that the machine is configured for, as a person
// would have kept it. Only control planes can give one: workers don't have the CA's key.
func (n *Node) Talosconfig() (string, error) {
	installed, err := n.folder.Config()
	if err != nil {
		return "", fmt.Errorf("talosconfig of %s: %w", n.Name(), err)
	}
	if len(installed) == 0 {
		return "", fmt.Errorf("talosconfig of %s: it has no configuration", n.Name())
	}
	provider, err := configloader.NewFromBytes(installed)
	if err != nil {
		return "", fmt.Errorf("talosconfig of %s: read its configuration: %w", n.Name(), err)
	}
	authority := provider.Machine().Security().IssuingCA()
	if authority == nil || len(authority.Key) == 0 {
		return "", fmt.Errorf("talosconfig of %s: it has no key of its cluster's authority", n.Name())
	}
	pair, err := secrets.NewAdminCertificateAndKey(time.Now(), authority, role.MakeSet(role.Admin), accessTTL)
	if err != nil {
		return "", fmt.Errorf("talosconfig of %s: %w", n.Name(), err)
	}
	m := n.machine()
	name, endpoint := provider.Cluster().Name(), m.Addr().String()
	text, err := clientconfig.NewConfig(name, []string{endpoint}, authority.Crt, pair).Bytes()
	return string(text), err
}
