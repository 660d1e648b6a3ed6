// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:method=UpdateApproval,verb=update,subresource=approval,input=maesh.dev/ichor/pkg/apis/ichor/v1alpha1.TalosMachine,result=maesh.dev/ichor/pkg/apis/ichor/v1alpha1.TalosMachine
// +genclient:method=UpdateIdentity,verb=update,subresource=identity,input=maesh.dev/ichor/pkg/apis/ichor/v1alpha1.TalosMachine,result=maesh.dev/ichor/pkg/apis/ichor/v1alpha1.TalosMachine
// +genclient:method=Finalize,verb=update,subresource=finalize,input=maesh.dev/ichor/pkg/apis/ichor/v1alpha1.TalosMachine,result=maesh.dev/ichor/pkg/apis/ichor/v1alpha1.TalosMachine
// +genclient:method=RecordHistory,verb=create,subresource=history,input=maesh.dev/ichor/pkg/apis/ichor/v1alpha1.TalosMachineHistory,result=maesh.dev/ichor/pkg/apis/ichor/v1alpha1.TalosMachineHistory
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosMachine is one machine with Talos Linux: who it is, whether a person approved it and what was decided then, and
// how it is. Ichor makes one for each machine it finds in maintenance mode; nothing is written to the machine before
// it is approved through the subresource "approval".
type TalosMachine struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata. The name is the machine's SMBIOS UUID in lower case, or weak-<hash>
	// where the UUID can't be trusted.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is the machine's identity and what was decided about it.
	Spec TalosMachineSpec `json:"spec"`
	// status is what was observed, written by Ichor alone.
	// +optional
	Status TalosMachineStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosMachineList is a list of TalosMachines.
type TalosMachineList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the machines.
	Items []TalosMachine `json:"items"`
}

// MachineOrigin says how a machine came to Ichor.
type MachineOrigin string

const (
	// MachineDiscovered was found in maintenance mode.
	MachineDiscovered MachineOrigin = "Discovered"
	// MachineAdopted already ran with the cluster's certificate authorities when it was entered.
	MachineAdopted MachineOrigin = "Adopted"
)

// ApprovalState is what a person decided about a machine.
type ApprovalState string

const (
	// ApprovalPending waits for a person.
	ApprovalPending ApprovalState = "pending"
	// ApprovalApproved lets Ichor configure the machine. It can't be taken back, only the machine removed.
	ApprovalApproved ApprovalState = "approved"
	// ApprovalRejected leaves the machine alone.
	ApprovalRejected ApprovalState = "rejected"
)

// MachineRole is what a machine is in its cluster.
type MachineRole string

const (
	// RoleControlPlane runs etcd and the Kubernetes API.
	RoleControlPlane MachineRole = "controlplane"
	// RoleWorker runs workloads.
	RoleWorker MachineRole = "worker"
)

// DeletionPolicy says what happens to the machine when its object is deleted.
type DeletionPolicy string

const (
	// DeletionReset drains the node, leaves etcd and wipes the machine.
	DeletionReset DeletionPolicy = "Reset"
	// DeletionOrphan leaves the machine as it is.
	DeletionOrphan DeletionPolicy = "Orphan"
)

// TalosMachineSpec is a machine's identity and what was decided about it.
type TalosMachineSpec struct {
	// clusterRef is the cluster that the machine belongs, or would belong, to. Can't be changed once approved.
	ClusterRef ClusterReference `json:"clusterRef"`
	// identity says which machine it is. Set at creation, can't be changed.
	Identity MachineIdentity `json:"identity"`
	// origin is Discovered (found in maintenance mode) or Adopted (already running with the cluster's certificate
	// authorities). Defaults to Discovered. Can't be changed.
	// +optional
	Origin MachineOrigin `json:"origin,omitempty"`
	// address is where an Adopted machine is dialled, an IP address. Required for Adopted, refused for Discovered.
	// +optional
	Address string `json:"address,omitempty"`
	// approvalState is pending, approved or rejected. Only the subresource "approval" changes it.
	// +optional
	ApprovalState ApprovalState `json:"approvalState,omitempty"`
	// approval says who decided, when, why, and which maintenance certificate was seen. Only the subresource "approval"
	// changes it.
	// +optional
	Approval *MachineApproval `json:"approval,omitempty"`
	// identityResolution is a person's word on a machine whose identity is in doubt. Only the subresource "identity"
	// changes it.
	// +optional
	IdentityResolution *IdentityResolution `json:"identityResolution,omitempty"`
	// role is controlplane or worker. Decided at approval, can't be changed after.
	// +optional
	Role MachineRole `json:"role,omitempty"`
	// nodeLabels are labels of the Kubernetes Node. Written through the subresource "approval".
	// +optional
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// hostname is the machine's hostname and the Node's name: a DNS label of up to 63 characters, unique in the cluster.
	// Empty lets Talos choose one. A control plane's can't be changed once approved.
	// +optional
	Hostname string `json:"hostname,omitempty"`
	// disks give roles to the machine's disks; a disk that isn't named is left unused. Exactly one has the role system.
	// +optional
	// +listType=atomic
	Disks []MachineDisk `json:"disks,omitempty"`
	// network is how the machine is addressed. Empty: DHCP on every link, as Talos does by itself.
	// +optional
	Network *MachineNetwork `json:"network,omitempty"`
	// locked keeps the machine from being removed, and operations from taking it down. Defaults to false.
	// +optional
	Locked bool `json:"locked,omitempty"`
	// deletionPolicy is Reset (drain, leave etcd, wipe) or Orphan (leave the machine as it is): what deleting this
	// object does to the machine. Defaults to Reset.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
	// removal is how the machine is removed once this object is deleted, beyond the ordinary. Setting or changing it needs
	// the verb "remove" on "talosmachines/removal", by the machine's name.
	// +optional
	Removal *MachineRemoval `json:"removal,omitempty"`
}

// MachineRemoval is how a machine is removed, beyond the ordinary. Once the object is deleted, skipDrain and force can be
// set, but not be taken back, and no disk can be added.
type MachineRemoval struct {
	// skipDrain doesn't wait for the pods of the machine's Node: they end with the machine. Defaults to false.
	// +optional
	SkipDrain bool `json:"skipDrain,omitempty"`
	// force gives the machine up if it doesn't answer: its etcd member is removed by another control plane, if etcd keeps
	// its quorum, its Node is deleted, and it is quarantined (status.quarantined of the cluster): nothing on it was wiped. A
	// machine that answers is wiped, without waiting for its pods. Defaults to false.
	// +optional
	Force bool `json:"force,omitempty"`
	// consent is the name of this object, typed once more. Required with force, refused without.
	// +optional
	Consent string `json:"consent,omitempty"`
	// wipeDisks are disks to wipe besides the system disk and the ephemeral one: storage, user volumes, unused ones. Each
	// must match exactly one disk of status.inventory. At most 64.
	// +optional
	// +listType=atomic
	WipeDisks []DiskMatch `json:"wipeDisks,omitempty"`
	// by is the user who asked last. Recorded by the server.
	// +optional
	By string `json:"by,omitempty"`
	// at is when that was. Recorded by the server.
	// +optional
	At *metav1.Time `json:"at,omitempty"`
}

// ClusterReference names a TalosCluster.
type ClusterReference struct {
	// name of the TalosCluster.
	Name string `json:"name"`
}

// MachineIdentity says which machine it is. Two identities are the same machine if UUID and serial number are equal and
// they share a permanent MAC address.
type MachineIdentity struct {
	// uuid is the SMBIOS system UUID as Talos reports it, in lower case; empty if there is none.
	// +optional
	UUID string `json:"uuid,omitempty"`
	// serialNumber is the SMBIOS system serial number; empty if there is none.
	// +optional
	SerialNumber string `json:"serialNumber,omitempty"`
	// macAddresses are the permanent addresses of the physical links, in lower case and sorted.
	// +optional
	// +listType=set
	MACAddresses []string `json:"macAddresses,omitempty"`
}

// MachineApproval is the record of a decision.
type MachineApproval struct {
	// maintenanceFingerprint is the fingerprint of the maintenance certificate that the approver was shown: base64 of
	// the SHA-256 of its public key, as the machine's console prints it. It must equal status.maintenanceFingerprint,
	// and is what the machine must present before it gets its first configuration. Not used for Adopted machines.
	// +optional
	MaintenanceFingerprint string `json:"maintenanceFingerprint,omitempty"`
	// reason is the approver's own note, up to 1,024 characters.
	// +optional
	Reason string `json:"reason,omitempty"`
	// by is the user who decided. Recorded by the server.
	// +optional
	By string `json:"by,omitempty"`
	// at is when it was decided. Recorded by the server.
	// +optional
	At *metav1.Time `json:"at,omitempty"`
	// clusterUID is the UID of the cluster that the machine was approved into. Recorded by the server.
	// +optional
	ClusterUID types.UID `json:"clusterUID,omitempty"`
}

// IdentityDecision is a person's word on a doubtful identity.
type IdentityDecision string

const (
	// IdentityDistinct says that it is a machine of its own, whatever its UUID claims.
	IdentityDistinct IdentityDecision = "Distinct"
	// IdentitySameAs says that it is the machine of another object; its address moves there and this object goes.
	IdentitySameAs IdentityDecision = "SameAs"
)

// IdentityResolution is a person's word on a doubtful identity.
type IdentityResolution struct {
	// decision is Distinct or SameAs.
	Decision IdentityDecision `json:"decision"`
	// machine is the name of the TalosMachine that it is the same as. Required for SameAs, refused for Distinct.
	// +optional
	Machine string `json:"machine,omitempty"`
	// by is the user who decided. Recorded by the server.
	// +optional
	By string `json:"by,omitempty"`
	// at is when it was decided. Recorded by the server.
	// +optional
	At *metav1.Time `json:"at,omitempty"`
}

// DiskRole is what a disk is used for.
type DiskRole string

const (
	// DiskSystem is the disk Talos is installed on.
	DiskSystem DiskRole = "system"
	// DiskEphemeral holds /var instead of the system disk.
	DiskEphemeral DiskRole = "ephemeral"
	// DiskStorage is left to a storage system in the cluster; Talos doesn't touch it.
	DiskStorage DiskRole = "storage"
	// DiskUserVolume is formatted and mounted by Talos under /var/mnt/<name>.
	DiskUserVolume DiskRole = "userVolume"
	// DiskUnused is left alone.
	DiskUnused DiskRole = "unused"
)

// MachineDisk gives a role to a disk.
type MachineDisk struct {
	// match says which disk, by a name that is burnt into it. It must match exactly one disk of status.inventory.
	Match DiskMatch `json:"match"`
	// role is system, ephemeral, storage, userVolume or unused.
	Role DiskRole `json:"role"`
	// name of the volume: required for userVolume, refused for other roles. Up to 34 letters, digits and hyphens.
	// +optional
	Name string `json:"name,omitempty"`
}

// DiskMatch chooses a disk. At least one member is given; all that are given must match.
type DiskMatch struct {
	// serial is the disk's serial number.
	// +optional
	Serial string `json:"serial,omitempty"`
	// wwid is the disk's world wide identifier, for instance naa.5000c500a1b2c3d4 or eui.0025388b01234567.
	// +optional
	WWID string `json:"wwid,omitempty"`
}

// Addressing is how a machine gets its address.
type Addressing string

const (
	// AddressingDHCP asks a DHCP server.
	AddressingDHCP Addressing = "dhcp"
	// AddressingStatic uses the given addresses.
	AddressingStatic Addressing = "static"
)

// MachineNetwork is how a machine is addressed.
type MachineNetwork struct {
	// interface chooses the primary network interface.
	Interface InterfaceMatch `json:"interface"`
	// addressing is dhcp or static. Defaults to dhcp.
	// +optional
	Addressing Addressing `json:"addressing,omitempty"`
	// addresses are the static addresses with their prefix length, for instance 10.0.0.11/24. Required for static,
	// refused for dhcp.
	// +optional
	// +listType=atomic
	Addresses []string `json:"addresses,omitempty"`
	// gateway is the default route's next hop; it lies in the network of one of the addresses. Refused for dhcp.
	// +optional
	Gateway string `json:"gateway,omitempty"`
	// nameservers are the DNS servers' IP addresses.
	// +optional
	// +listType=atomic
	Nameservers []string `json:"nameservers,omitempty"`
	// vlan is the ID of the VLAN that the addresses are on, 1 to 4094. Absent: untagged.
	// +optional
	VLAN *int32 `json:"vlan,omitempty"`
}

// InterfaceMatch chooses a network interface.
type InterfaceMatch struct {
	// mac is the permanent address of a physical link of status.inventory, for instance 02:00:5e:00:53:01.
	MAC string `json:"mac"`
}
