// SPDX-License-Identifier: Apache-2.0

// Package facts computes the COSI resources that a hollow node shows from what the node is at the moment. It is pure: the
// node calls Compute after each change and writes the difference.
//
// Owners, ids and values follow recordings of a real node and, where those have none (disks, installation), the Talos
// controllers that are named as owners.
package facts

import (
	"net/netip"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"

	"maesh.dev/ichor/test/hollow/disk"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/profile"
	"maesh.dev/ichor/test/hollow/workload"
)

// View is everything that the resources follow from.
type View struct {
	// Machine is the hardware as it is now (a NIC may have been swapped).
	Machine fleet.Machine
	// Address is what the node's first link that is up has.
	Address netip.Prefix
	// Also are further addresses of that link, such as a virtual IP.
	Also []netip.Prefix
	// Seen are all addresses that the node had since it booted.
	Seen []netip.Prefix
	// Hostname is empty while nothing gave the node one.
	Hostname, Domainname string
	// Version is that of the running system, Profile what is special about it, BootID the kernel's name of this boot.
	Version string
	Profile *profile.Profile
	BootID  string
	// Schematic is that of the running system.
	Schematic string
	// Maintenance is true while there is no configuration that is complete for boot.
	Maintenance bool
	// APIOpen is true once apid knows how to listen.
	APIOpen bool
	// Active and Persistent are the configurations; nil if there is none.
	Active, Persistent config.Provider
	// Installed is what the system disk has; nil if nothing.
	Installed *disk.Installation
	// Meta are the values of META, with those that are only in memory.
	Meta map[uint8]string
	// NodeID is the cluster identity.
	NodeID string
	// Services are those that have started.
	Services []Service
	// Workload is what runs of Kubernetes.
	Workload workload.Status
	// MaintenanceCA is the throw-away CA of this boot.
	MaintenanceCA *x509.PEMEncodedCertificateAndKey
	// ControlPlanes are the addresses of running ones that discovery knows.
	ControlPlanes []netip.Addr
	// Peers are the control planes that discovery knows, silent ones and this machine included.
	Peers []Peer
	// Booted is true once the boot sequence mounted EPHEMERAL.
	Booted bool
}

// Peer is a control plane as discovery knows it.
type Peer struct {
	NodeID, Hostname string
	Address          netip.Addr
	// APIPort is that of its own Kubernetes API, Version that of its Talos.
	APIPort int
	Version string
}

// Service is a Talos service that has started.
type Service struct {
	ID                        string
	Running, Healthy, Unknown bool
	PID                       int32
}

// Group are all resources of one kind; those of the kind that are not in it are to be destroyed.
type Group struct {
	// Owner is the Talos controller that owns them.
	Owner     string
	Kind      resource.Metadata
	Resources []resource.Resource
}

func group(owner string, namespace resource.Namespace, kind resource.Type, resources ...resource.Resource) Group {
	return Group{Owner: owner, Kind: resource.NewMetadata(namespace, kind, "", resource.VersionUndefined), Resources: resources}
}

// Compute gives all groups.
func Compute(v View) []Group {
	var groups []Group
	groups = append(groups, hardwareGroups(v)...)
	groups = append(groups, linkGroups(v)...)
	groups = append(groups, networkGroups(v)...)
	groups = append(groups, blockGroups(v)...)
	groups = append(groups, volumeGroups(v)...)
	groups = append(groups, runtimeGroups(v)...)
	groups = append(groups, configGroups(v)...)
	groups = append(groups, kubernetesGroups(v)...)
	groups = append(groups, controlPlaneGroups(v)...)
	groups = append(groups, extraGroups(v)...)
	return groups
}

// when gives the resource if the condition holds, as a list that group takes.
func when(condition bool, make func() resource.Resource) []resource.Resource {
	if !condition {
		return nil
	}
	return []resource.Resource{make()}
}
