// SPDX-License-Identifier: Apache-2.0

package ichor

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// MachineReclaim resets a machine that another Talos cluster configured, so that it comes back in maintenance mode and
// can be approved. Whoever creates one types the machine's UUID as consent, and holds a talosconfig of that cluster.
type MachineReclaim struct {
	metav1.TypeMeta
	// metadata is the standard object's metadata.
	metav1.ObjectMeta
	// spec is which machine, and what may be wiped. It can't be changed.
	Spec MachineReclaimSpec
	// status is what was found and done, written by Ichor alone.
	Status MachineReclaimStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// MachineReclaimList is a list of MachineReclaims.
type MachineReclaimList struct {
	metav1.TypeMeta
	// metadata is the standard list's metadata.
	metav1.ListMeta
	// items are the reclaims.
	Items []MachineReclaim
}

// MachineReclaimSpec is which machine, and what may be wiped.
type MachineReclaimSpec struct {
	// address is where the machine is dialled, an IP address.
	Address string
	// uuid is the machine's SMBIOS system UUID, typed as consent to wipe it. The machine is asked for its own before
	// anything is written; a difference ends in Refused. Must not be that of a machine Ichor manages, nor one that
	// vendors give to many boards.
	UUID string
	// talosconfigSecretRef names the Secret in ichor-system with the key talosconfig: a client configuration of the
	// cluster that the machine belongs to now.
	TalosconfigSecretRef LocalSecretReference
	// wipeDisks are disks that are wiped besides the system disk. All others keep their data. At most 64.
	WipeDisks []DiskMatch
	// acceptQuorumLoss goes on even where the machine's own cluster loses its etcd quorum with it. Defaults to false.
	AcceptQuorumLoss bool
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
	ObservedGeneration int64
	// phase is Pending, Inspecting, Resetting, Succeeded, Refused or Failed.
	Phase ReclaimPhase
	// message says for people what happens, or why it was refused and what to do.
	Message string
	// conditions say how the reclaim is: Complete, Failed.
	Conditions []metav1.Condition
	// willWipe are the disks that are wiped, listed before anything is.
	WillWipe []ReclaimDisk
	// willKeep are the disks that keep their data.
	WillKeep []ReclaimDisk
	// bootID is the machine's boot id before the reset, by which its return is noticed.
	BootID string
}

// ReclaimDisk is a disk of the machine.
type ReclaimDisk struct {
	// device is the disk's name on the machine, for instance /dev/nvme0n1.
	Device string
	// serial is the disk's serial number.
	Serial string
	// wwid is the disk's world wide identifier.
	WWID string
	// model is what the vendor calls it.
	Model string
	// size of the disk.
	Size resource.Quantity
}
