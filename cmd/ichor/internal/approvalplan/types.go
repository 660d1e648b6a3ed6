// SPDX-License-Identifier: Apache-2.0

package approvalplan

import (
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// What a document says it is. The group isn't one that a server serves: a plan is read by this program alone.
const (
	APIVersion = "cli.ichor.maesh.dev/v1alpha1"
	Kind       = "ApprovalPlan"
)

// Document is one YAML document of a plan. Fields that TalosMachine's spec has too are named as there and mean the same,
// so `kubectl explain talosmachine.spec` explains them.
type Document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Defaults hold for all machines of this document; what a machine's own entry says wins.
	Defaults Settings `json:"defaults"`
	Machines []Entry  `json:"machines"`
}

// Settings are what machines may have in common.
type Settings struct {
	ClusterRef v1alpha1.ClusterReference `json:"clusterRef"`
	Role       v1alpha1.MachineRole      `json:"role"`
	// NodeLabels of defaults and entry are put together, key by key.
	NodeLabels map[string]string `json:"nodeLabels"`
	// Network of defaults and entry is put together, field by field.
	Network *Network `json:"network"`
	// Reason is spec.approval.reason.
	Reason string `json:"reason"`
}

// Entry is one machine: by what it is known, and what it becomes.
type Entry struct {
	// What the machine is known by; all that are given must fit, and at least one is given. SerialNumber and UUID are
	// spec.identity's, MACAddress is one of its macAddresses, Name is the object's name.
	SerialNumber string `json:"serialNumber"`
	UUID         string `json:"uuid"`
	MACAddress   string `json:"macAddress"`
	Name         string `json:"name"`

	Settings `json:",inline"`

	Hostname string `json:"hostname"`
	// InstallDisk is short for an entry of disks with the role system.
	InstallDisk *v1alpha1.DiskMatch    `json:"installDisk"`
	Disks       []v1alpha1.MachineDisk `json:"disks"`
	// MaintenanceFingerprint is the one on the machine's console, for those who noted it at the rack: if the machine
	// shows another, the plan fails. Without it the one that the machine shows while the plan is checked is taken.
	MaintenanceFingerprint string `json:"maintenanceFingerprint"`
}

// Network is how a machine is addressed. Addressing needn't be given: with addresses it is static.
type Network struct {
	Interface   Interface           `json:"interface"`
	Addressing  v1alpha1.Addressing `json:"addressing"`
	Addresses   []string            `json:"addresses"`
	Gateway     string              `json:"gateway"`
	Nameservers []string            `json:"nameservers"`
	VLAN        *int32              `json:"vlan"`
}

// Interface chooses a network interface by its permanent address, or by the name that it has in this boot, which machines
// of one make have in common. What is stored is the address. Without either it is the interface the machine answers at.
type Interface struct {
	MAC  string `json:"mac"`
	Name string `json:"name"`
}

// given is what the entry names the machine by, in the order in which people trust it.
func (e *Entry) given() []key {
	var keys []key
	for _, candidate := range []key{
		{"serialNumber", e.SerialNumber}, {"uuid", e.UUID}, {"macAddress", e.MACAddress}, {"name", e.Name},
	} {
		if candidate.value != "" {
			keys = append(keys, candidate)
		}
	}
	return keys
}

// key is one thing a machine is known by.
type key struct{ field, value string }

// over puts an entry's settings over the defaults.
func (s Settings) over(defaults Settings) Settings {
	merged := defaults
	if s.ClusterRef.Name != "" {
		merged.ClusterRef = s.ClusterRef
	}
	if s.Role != "" {
		merged.Role = s.Role
	}
	if s.Reason != "" {
		merged.Reason = s.Reason
	}
	merged.NodeLabels = nil
	for _, labels := range []map[string]string{defaults.NodeLabels, s.NodeLabels} {
		for name, value := range labels {
			if merged.NodeLabels == nil {
				merged.NodeLabels = map[string]string{}
			}
			merged.NodeLabels[name] = value
		}
	}
	merged.Network = s.Network.over(defaults.Network)
	return merged
}

// over puts one network over another. An entry that says dhcp doesn't take what only static addresses have.
func (n *Network) over(defaults *Network) *Network {
	if n == nil || defaults == nil {
		if n == nil {
			return defaults
		}
		return n
	}
	merged := *defaults
	if n.Interface != (Interface{}) {
		merged.Interface = n.Interface
	}
	if n.Addressing == v1alpha1.AddressingDHCP {
		merged.Addresses, merged.Gateway = nil, ""
	}
	if n.Addressing != "" {
		merged.Addressing = n.Addressing
	}
	if n.Addresses != nil {
		merged.Addresses = n.Addresses
	}
	if n.Gateway != "" {
		merged.Gateway = n.Gateway
	}
	if n.Nameservers != nil {
		merged.Nameservers = n.Nameservers
	}
	if n.VLAN != nil {
		merged.VLAN = n.VLAN
	}
	return &merged
}
