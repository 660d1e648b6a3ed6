// SPDX-License-Identifier: Apache-2.0

package proposal

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Choices are what a person typed as flags; empty means not given.
type Choices struct {
	Role        string
	Hostname    string
	InstallDisk string
	// Disks are SELECTOR:ROLE or SELECTOR:userVolume:NAME.
	Disks       []string
	Interface   string
	Addresses   []string
	Gateway     string
	Nameservers []string
	VLAN        int32
	Labels      map[string]string
	Reason      string
}

// Decide starts from a decision and puts what was chosen over it. All that is wrong is told at once; each fault names its
// flag.
func (c Choices) Decide(start Decision, machine *v1alpha1.TalosMachine) (Decision, []error) {
	decision := start
	var faults []error
	if c.Role != "" {
		role, err := ParseRole(c.Role)
		if err != nil {
			faults = append(faults, fmt.Errorf("--role: %w", err))
		}
		decision.Role = role
	}
	if c.Hostname != "" {
		decision.Hostname = c.Hostname
	}
	if c.Reason != "" {
		decision.Reason = c.Reason
	}
	if len(c.Labels) > 0 {
		decision.Labels = maps.Clone(start.Labels)
		if decision.Labels == nil {
			decision.Labels = map[string]string{}
		}
		maps.Copy(decision.Labels, c.Labels)
	}
	disks, diskFaults := c.decideDisks(start.Disks, machine.Status.Inventory)
	network, networkFaults := c.decideNetwork(start.Network, machine)
	decision.Disks, decision.Network = disks, network
	return decision, slices.Concat(faults, diskFaults, networkFaults)
}

// ParseRole reads a role as a person spells it.
func ParseRole(typed string) (v1alpha1.MachineRole, error) {
	switch strings.ReplaceAll(strings.ToLower(typed), "-", "") {
	case "controlplane", "cp":
		return v1alpha1.RoleControlPlane, nil
	case "worker":
		return v1alpha1.RoleWorker, nil
	}
	return "", fmt.Errorf("%q is neither controlplane nor worker", typed)
}

func (c Choices) decideDisks(start []v1alpha1.MachineDisk, inventory *v1alpha1.MachineInventory) ([]v1alpha1.MachineDisk, []error) {
	disks := slices.Clone(start)
	var faults []error
	if c.InstallDisk != "" {
		disk, err := FindDisk(inventory, c.InstallDisk)
		if err == nil && disk.Impossible {
			err = fmt.Errorf("%s is no place for Talos: %s", disk.Device, disk.Objection)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("--install-disk: %w", err))
		} else {
			disks = slices.DeleteFunc(disks, func(decided v1alpha1.MachineDisk) bool { return decided.Role == v1alpha1.DiskSystem })
			disks = setDisk(disks, v1alpha1.MachineDisk{Match: disk.Match, Role: v1alpha1.DiskSystem}, disk.DiskInventory)
		}
	}
	given := map[string]string{}
	for _, typed := range c.Disks {
		decided, disk, err := parseDisk(inventory, typed)
		if err == nil && given[disk.Device] != "" {
			err = fmt.Errorf("%s was given two roles: %s and %s", disk.Device, given[disk.Device], typed)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("--disk %s: %w", typed, err))
			continue
		}
		given[disk.Device] = typed
		disks = setDisk(disks, decided, disk.DiskInventory)
	}
	return disks, faults
}

// setDisk gives a disk a role instead of the one it had.
func setDisk(disks []v1alpha1.MachineDisk, decided v1alpha1.MachineDisk, disk v1alpha1.DiskInventory) []v1alpha1.MachineDisk {
	disks = slices.DeleteFunc(slices.Clone(disks), func(other v1alpha1.MachineDisk) bool { return Matches(other.Match, disk) })
	if decided.Role == v1alpha1.DiskSystem {
		return slices.Insert(disks, 0, decided)
	}
	return append(disks, decided)
}

// diskChoice splits SELECTOR:ROLE[:NAME]; the role is looked for from the end, because a WWID may hold colons.
var diskChoice = regexp.MustCompile(`(?i)^(.+):(system|ephemeral|storage|userVolume|unused)(?::([^:]*))?$`)

var diskRoles = []v1alpha1.DiskRole{
	v1alpha1.DiskSystem, v1alpha1.DiskEphemeral, v1alpha1.DiskStorage, v1alpha1.DiskUserVolume, v1alpha1.DiskUnused,
}

func parseDisk(inventory *v1alpha1.MachineInventory, typed string) (v1alpha1.MachineDisk, Disk, error) {
	parts := diskChoice.FindStringSubmatch(typed)
	if parts == nil {
		return v1alpha1.MachineDisk{}, Disk{}, fmt.Errorf("want DISK:ROLE or DISK:userVolume:NAME, with ROLE one of system, ephemeral, storage, userVolume, unused; for instance serial=S2:userVolume:data")
	}
	disk, err := FindDisk(inventory, parts[1])
	if err != nil {
		return v1alpha1.MachineDisk{}, Disk{}, err
	}
	decided := v1alpha1.MachineDisk{Match: disk.Match, Name: parts[3]}
	for _, role := range diskRoles {
		if strings.EqualFold(string(role), parts[2]) {
			decided.Role = role
		}
	}
	switch {
	case decided.Role == v1alpha1.DiskUserVolume && decided.Name == "":
		return decided, disk, fmt.Errorf("a userVolume needs a name, for instance %s:data", typed)
	case decided.Role != v1alpha1.DiskUserVolume && decided.Name != "":
		return decided, disk, fmt.Errorf("only a userVolume has a name")
	case decided.Role != v1alpha1.DiskUnused && !disk.Usable():
		return decided, disk, fmt.Errorf("%s can't be used: %s", disk.Device, disk.Objection)
	}
	return decided, disk, nil
}

func (c Choices) decideNetwork(start *v1alpha1.MachineNetwork, machine *v1alpha1.TalosMachine) (*v1alpha1.MachineNetwork, []error) {
	if c.Interface == "" && len(c.Addresses) == 0 && c.Gateway == "" && len(c.Nameservers) == 0 && c.VLAN == 0 {
		return start, nil
	}
	network := &v1alpha1.MachineNetwork{Addressing: v1alpha1.AddressingDHCP}
	if start != nil {
		network = start.DeepCopy()
	}
	var faults []error
	if c.Interface != "" || network.Interface.MAC == "" {
		link, err := c.chooseLink(Links(machine))
		if err != nil {
			faults = append(faults, err)
		}
		network.Interface.MAC = link.PermanentMAC
	}
	for _, address := range c.Addresses {
		if _, err := netip.ParsePrefix(address); err != nil {
			faults = append(faults, fmt.Errorf("--address: %q is no address with a prefix length, for instance 10.0.0.11/24", address))
		}
	}
	if len(c.Addresses) > 0 {
		network.Addressing, network.Addresses = v1alpha1.AddressingStatic, c.Addresses
	}
	if c.Gateway != "" {
		network.Gateway = c.Gateway
		if network.Addressing != v1alpha1.AddressingStatic {
			faults = append(faults, fmt.Errorf("--gateway: only together with --address; with DHCP the server says it"))
		}
	}
	if len(c.Nameservers) > 0 {
		network.Nameservers = c.Nameservers
	}
	if c.VLAN != 0 {
		network.VLAN = &c.VLAN
	}
	return network, faults
}

func (c Choices) chooseLink(links []Link) (Link, error) {
	if c.Interface != "" {
		link, err := FindLink(links, c.Interface)
		if err != nil {
			return Link{}, fmt.Errorf("--interface: %w", err)
		}
		return link, nil
	}
	link, found := BestLink(links)
	if !found {
		return Link{}, fmt.Errorf("--interface: several interfaces have a carrier; name one")
	}
	return link, nil
}
