// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// MachineReclaim resets a machine that another Talos cluster configured, so that it comes back in maintenance mode and
// can be approved. Whoever creates one types the machine's UUID as consent, and holds a talosconfig of that cluster.
type MachineReclaim struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is which machine, and what may be wiped. It can't be changed.
	Spec MachineReclaimSpec `json:"spec"`
	// status is what was found and done, written by Ichor alone.
	// +optional
	Status MachineReclaimStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// MachineReclaimList is a list of MachineReclaims.
type MachineReclaimList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the reclaims.
	Items []MachineReclaim `json:"items"`
}

// MachineReclaimSpec is which machine, and what may be wiped.
type MachineReclaimSpec struct {
	// address is where the machine is dialled, an IP address.
	Address string `json:"address"`
	// uuid is the machine's SMBIOS system UUID, typed as consent to wipe it. The machine is asked for its own before
	// anything is written; a difference ends in Refused. Must not be that of a machine Ichor manages, nor one that
	// vendors give to many boards.
	UUID string `json:"uuid"`
	// talosconfigSecretRef names the Secret in ichor-system with the key talosconfig: a client configuration of the
	// cluster that the machine belongs to now.
	TalosconfigSecretRef LocalSecretReference `json:"talosconfigSecretRef"`
	// wipeDisks are disks that are wiped besides the system disk. All others keep their data. At most 64.
	// +optional
	// +listType=atomic
	WipeDisks []DiskMatch `json:"wipeDisks,omitempty"`
	// acceptQuorumLoss goes on even where the machine's own cluster loses its etcd quorum with it. Defaults to false.
	// +optional
	AcceptQuorumLoss bool `json:"acceptQuorumLoss,omitempty"`
}

// ReclaimPhase sums up where a reclaim is.
type ReclaimPhase string

// The phases of a reclaim. Succeeded, Refused and Failed are final.
const (
	// ReclaimPending was created and is yet to be looked at.
	ReclaimPending ReclaimPhase = "Pending"
	// ReclaimInspecting reads who and what the machine is.
	ReclaimInspecting ReclaimPhase = "Inspecting"
	// ReclaimResetting has told the machine to wipe itself.
	ReclaimResetting ReclaimPhase = "Resetting"
	// ReclaimSucceeded means that the machine is back in maintenance mode.
	ReclaimSucceeded ReclaimPhase = "Succeeded"
	// ReclaimRefused means that it isn't the machine that was named, or that its cluster needs it; nothing was written.
	ReclaimRefused ReclaimPhase = "Refused"
	// ReclaimFailed means that it went wrong.
	ReclaimFailed ReclaimPhase = "Failed"
)

// MachineReclaimStatus is what was found and done.
type MachineReclaimStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// phase is Pending, Inspecting, Resetting, Succeeded, Refused or Failed.
	// +optional
	Phase ReclaimPhase `json:"phase,omitempty"`
	// message says for people what happens, or why it was refused and what to do.
	// +optional
	Message string `json:"message,omitempty"`
	// conditions say how the reclaim is: Complete, Failed.
	// The server adds Reconciling (on its way) and Stalled (waits for somebody), as kstatus reads them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// willWipe are the disks that are wiped, listed before anything is.
	// +optional
	// +listType=atomic
	WillWipe []ReclaimDisk `json:"willWipe,omitempty"`
	// willKeep are the disks that keep their data.
	// +optional
	// +listType=atomic
	WillKeep []ReclaimDisk `json:"willKeep,omitempty"`
	// bootID is the machine's boot id before the reset, by which its return is noticed.
	// +optional
	BootID string `json:"bootID,omitempty"`
}

// ReclaimDisk is a disk of the machine.
type ReclaimDisk struct {
	// device is the disk's name on the machine, for instance /dev/nvme0n1.
	// +optional
	Device string `json:"device,omitempty"`
	// serial is the disk's serial number.
	// +optional
	Serial string `json:"serial,omitempty"`
	// wwid is the disk's world wide identifier.
	// +optional
	WWID string `json:"wwid,omitempty"`
	// model is what the vendor calls it.
	// +optional
	Model string `json:"model,omitempty"`
	// size of the disk.
	// +optional
	Size resource.Quantity `json:"size,omitempty"`
}
