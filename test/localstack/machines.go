// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/localstack/loopback"
	"maesh.dev/ichor/test/localstack/state"
)

// minimumDisk is what Talos needs to install itself. Source: talos-contract.md.
const minimumDisk = fleet.Size(10 << 30)

// loadFleet returns the machines of the stack: those of the folder if it was used before, else of the given file, else
// new ones. The fleet file in the folder is written.
func loadFleet(o Options, dir state.Dir, addresses *loopback.Range, used bool) (*fleet.Fleet, error) {
	if used {
		return keptFleet(o, dir, addresses)
	}
	machines, err := newFleet(o, addresses)
	if err != nil {
		return nil, err
	}
	data, err := machines.Encode()
	if err != nil {
		return nil, fmt.Errorf("write fleet file: %w", err)
	}
	if err := state.Write(dir.Fleet(), data); err != nil {
		return nil, err
	}
	return machines, nil
}

// keptFleet are the machines of the folder, which have to be what was asked for now.
func keptFleet(o Options, dir state.Dir, addresses *loopback.Range) (*fleet.Fleet, error) {
	kept, err := fleet.Load(dir.Fleet())
	if err != nil {
		return nil, err
	}
	other := fmt.Errorf("the folder %s holds other machines than were asked for; remove it to start anew, or ask for none to carry on with them", dir)
	if o.Machines != 0 && o.Machines != len(kept.Machines) {
		return nil, other
	}
	if o.FleetFile == "" {
		return kept, nil
	}
	asked, err := newFleet(o, addresses)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(asked, kept) {
		return nil, other
	}
	return kept, nil
}

func newFleet(o Options, addresses *loopback.Range) (*fleet.Fleet, error) {
	if o.FleetFile == "" {
		return madeFleet(cmp.Or(o.Machines, defaultMachines), addresses.Machine(0))
	}
	machines, err := fleet.Load(o.FleetFile)
	if err != nil {
		return nil, err
	}
	for i := range machines.Machines {
		m := &machines.Machines[i]
		m.Address = fleet.Prefix{Prefix: netip.PrefixFrom(addresses.Move(m.Addr()), m.Address.Bits())}
	}
	if err := machines.Validate(); err != nil {
		return nil, fmt.Errorf("fleet file %s, moved to %s: %w", o.FleetFile, addresses.Prefix(), err)
	}
	return machines, nil
}

// madeFleet are machines of the stack's version. The last one, unless it is the only one, booted from newer media, as
// happens in real racks; it gets the cluster's version when it is installed.
func madeFleet(machines int, first netip.Addr) (*fleet.Fleet, error) {
	made, err := fleet.Generate(fleet.GenerateOptions{Machines: machines, First: first, TalosVersion: TalosVersion})
	if err != nil {
		return nil, err
	}
	if machines > 1 {
		made.Machines[machines-1].TalosVersion = newerMedia
	}
	return made, nil
}

// firstMachine is the machine that becomes the first control plane: the one that was chosen before, else the first one
// that waits in maintenance mode.
func firstMachine(machines *fleet.Fleet, chosen string) (*fleet.Machine, error) {
	for i := range machines.Machines {
		m := &machines.Machines[i]
		if m.Name == chosen || chosen == "" && m.State == fleet.StateMaintenance {
			return m, nil
		}
	}
	return nil, fmt.Errorf("first control plane: the fleet has no machine that waits in maintenance mode (wanted: %q)", chosen)
}

// systemDisk chooses the disk to install on as a person would: a fixed one, large enough, that holds nothing.
func systemDisk(m *fleet.Machine) (v1alpha1.DiskMatch, error) {
	for _, d := range m.Disks {
		if d.ReadOnly || d.CDROM || d.Transport == "usb" || d.Size < minimumDisk || d.Signature != "" {
			continue
		}
		if d.Serial != "" || d.WWID != "" {
			match := v1alpha1.DiskMatch{Serial: d.Serial}
			if d.Serial == "" {
				match.WWID = d.WWID
			}
			return match, nil
		}
	}
	return v1alpha1.DiskMatch{}, fmt.Errorf("machine %s: no empty fixed disk of 10 GiB or more with a serial number or WWID", m.Name)
}

// subnet is what has to be scanned to find every machine.
func subnet(machines *fleet.Fleet) netip.Prefix {
	var all []netip.Addr
	for i := range machines.Machines {
		all = append(all, machines.Machines[i].Addr())
	}
	return loopback.Cover(all)
}
