// SPDX-License-Identifier: Apache-2.0

package approvalplan

import (
	"fmt"
	"net/netip"
	"slices"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/proposal"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// decide works out what an entry makes of its machine, and everything that it leaves open or gets wrong.
func (i *Item) decide(machine *v1alpha1.TalosMachine, facts Facts) (proposal.Decision, []*Fault) {
	decision := proposal.Decision{
		Cluster: machine.Spec.ClusterRef.Name, Role: i.Role, Hostname: i.Hostname, Labels: i.NodeLabels, Reason: i.Reason,
	}
	if machine.Spec.Origin == v1alpha1.MachineAdopted {
		decision = i.adopted(machine, facts)
	}
	if i.ClusterRef.Name != "" {
		decision.Cluster = i.ClusterRef.Name
	}
	var faults []*Fault
	usage := func(field, format string, args ...any) {
		faults = append(faults, i.Fault(cli.ExitUsage, field, fmt.Sprintf(format, args...)))
	}
	if decision.Role == "" {
		usage("role", "is missing: controlplane or worker, here or in defaults")
	}
	if facts.cluster(decision.Cluster) == nil {
		usage("clusterRef.name", "there is no cluster %q; there are %s", decision.Cluster, quoted(facts.clusterNames()))
	}
	if pin := i.MaintenanceFingerprint; pin != "" && pin != machine.Status.MaintenanceFingerprint && machine.Spec.ApprovalState != v1alpha1.ApprovalApproved {
		faults = append(faults, i.Fault(cli.ExitBlocked, "maintenanceFingerprint", fmt.Sprintf(
			"the machine shows %q now, not %q: a reboot makes a new one, and so does another machine in its place; look at its console again", machine.Status.MaintenanceFingerprint, pin)))
	}
	if i.InstallDisk != nil || len(i.Disks) > 0 || machine.Spec.Origin != v1alpha1.MachineAdopted {
		disks, bad := i.decideDisks(machine, facts)
		if len(systemDisks(disks)) == 0 { // of a running machine, which keeps the one it has
			disks = slices.Concat(systemDisks(decision.Disks), disks)
		}
		decision.Disks, faults = disks, append(faults, bad...)
	}
	if i.Network != nil {
		network, bad := i.decideNetwork(machine)
		decision.Network, faults = network, append(faults, bad...)
	}
	return decision, faults
}

// adopted starts from what a running machine is: approving it is to change nothing on it.
func (i *Item) adopted(machine *v1alpha1.TalosMachine, facts Facts) proposal.Decision {
	decision := proposal.Propose(proposal.Facts{Machine: machine, Cluster: facts.cluster(machine.Spec.ClusterRef.Name), Machines: facts.Machines}).Decision
	if i.Role != "" {
		decision.Role = i.Role
	}
	if i.Hostname != "" {
		decision.Hostname = i.Hostname
	}
	if len(i.NodeLabels) > 0 {
		decision.Labels = i.NodeLabels
	}
	decision.Reason = i.Reason
	return decision
}

// decideDisks gives the machine's disks their roles. Without a word about the install disk it is the only one that is fit,
// if nothing is on it.
func (i *Item) decideDisks(machine *v1alpha1.TalosMachine, facts Facts) ([]v1alpha1.MachineDisk, []*Fault) {
	var disks []v1alpha1.MachineDisk
	var faults []*Fault
	i.disks = nil
	taken := map[string]string{} // device → path in the file
	system := false
	add := func(disk v1alpha1.MachineDisk, path string) {
		disks, i.disks = append(disks, disk), append(i.disks, path)
		system = system || disk.Role == v1alpha1.DiskSystem
		found, err := proposal.ResolveDisk(machine.Status.Inventory, disk.Match)
		switch {
		case err != nil:
			faults = append(faults, i.faultAt(cli.ExitUsage, path, err.Error()+facts.elsewhere(disk.Match, machine)))
		case taken[found.Device] != "":
			faults = append(faults, i.faultAt(cli.ExitUsage, path, fmt.Sprintf("is %s, which %s gives a role already", found.Device, taken[found.Device])))
		case disk.Role == v1alpha1.DiskSystem && found.Impossible:
			faults = append(faults, i.faultAt(cli.ExitUsage, path, fmt.Sprintf("%s is no place for Talos: %s", found.Device, found.Objection)))
		default:
			taken[found.Device] = path
		}
	}
	if i.InstallDisk != nil {
		add(v1alpha1.MachineDisk{Match: *i.InstallDisk, Role: v1alpha1.DiskSystem}, "installDisk")
	}
	for n, disk := range i.Disks {
		path := fmt.Sprintf("disks[%d]", n)
		if disk.Role == v1alpha1.DiskSystem && system {
			faults = append(faults, i.faultAt(cli.ExitUsage, path, "another disk is the one to install on already; there is exactly one"))
		}
		add(disk, path)
	}
	if system || machine.Spec.Origin == v1alpha1.MachineAdopted {
		return disks, faults
	}
	found, why := onlyDisk(machine)
	if why != "" {
		return disks, append(faults, i.faultAt(cli.ExitUsage, "installDisk", "is missing, and can't be guessed: "+why))
	}
	if taken[found.Device] != "" {
		return disks, append(faults, i.faultAt(cli.ExitUsage, "installDisk", fmt.Sprintf("is missing, and the only disk that is fit, %s, has another role", found.Device)))
	}
	i.disks = slices.Insert(i.disks, 0, "installDisk")
	return slices.Insert(disks, 0, v1alpha1.MachineDisk{Match: found.Match, Role: v1alpha1.DiskSystem}), faults
}

func systemDisks(disks []v1alpha1.MachineDisk) []v1alpha1.MachineDisk {
	return slices.DeleteFunc(slices.Clone(disks), func(disk v1alpha1.MachineDisk) bool { return disk.Role != v1alpha1.DiskSystem })
}

// onlyDisk is the disk to install on where there is no choice and nothing to lose.
func onlyDisk(machine *v1alpha1.TalosMachine) (proposal.Disk, string) {
	proposed := proposal.Propose(proposal.Facts{Machine: machine})
	switch {
	case proposed.NoSystemDisk != "":
		return proposal.Disk{}, proposed.NoSystemDisk
	case proposed.Candidates[0].Signature != "":
		return proposal.Disk{}, fmt.Sprintf("the only disk that is fit, %s, has %s on it; name it to have it wiped", proposed.Candidates[0].Device, proposed.Candidates[0].Signature)
	}
	return proposed.Candidates[0], ""
}

// decideNetwork resolves the interface, and says static where there are addresses.
func (i *Item) decideNetwork(machine *v1alpha1.TalosMachine) (*v1alpha1.MachineNetwork, []*Fault) {
	said := i.Network
	network := &v1alpha1.MachineNetwork{
		Addressing: said.Addressing, Addresses: said.Addresses, Gateway: said.Gateway, Nameservers: said.Nameservers, VLAN: said.VLAN,
	}
	var faults []*Fault
	usage := func(field, format string, args ...any) {
		faults = append(faults, i.Fault(cli.ExitUsage, "network."+field, fmt.Sprintf(format, args...)))
	}
	if network.Addressing == "" {
		network.Addressing = v1alpha1.AddressingDHCP
		if len(network.Addresses) > 0 {
			network.Addressing = v1alpha1.AddressingStatic
		}
	}
	if network.Addressing == v1alpha1.AddressingDHCP && network.Gateway != "" {
		usage("gateway", "is for static addresses, and there are none; give addresses, or say addressing: dhcp, which leaves a gateway of the defaults out")
	}
	for n, address := range network.Addresses {
		if _, err := netip.ParsePrefix(address); err != nil {
			usage(fmt.Sprintf("addresses[%d]", n), "%q is no address with a prefix length, for instance 10.0.0.11/24", address)
		}
	}
	links := proposal.Links(machine)
	var link proposal.Link
	var err error
	switch {
	case said.Interface.MAC != "" && said.Interface.Name != "":
		usage("interface", "give mac or name, not both")
	case said.Interface.MAC != "":
		if link, err = proposal.FindLink(links, said.Interface.MAC); err != nil {
			usage("interface.mac", "%v", err)
		}
	case said.Interface.Name != "":
		if link, err = proposal.FindLink(links, said.Interface.Name); err != nil {
			usage("interface.name", "%v", err)
		}
	default:
		found := false
		if link, found = proposal.BestLink(links); !found {
			usage("interface", "is missing: the machine has no interface that stands out; give its mac or name")
		}
	}
	network.Interface.MAC = link.PermanentMAC
	return network, faults
}
