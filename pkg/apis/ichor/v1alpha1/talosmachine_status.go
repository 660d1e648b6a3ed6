// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachineStage is what Talos reports of itself. Only "shutting down" is spelled shuttingDown here.
// Source: Talos, pkg/machinery/resources/runtime/machinestage.go.
type MachineStage string

// The stages, in Talos' words.
const (
	StageUnknown      MachineStage = "unknown"
	StageBooting      MachineStage = "booting"
	StageInstalling   MachineStage = "installing"
	StageMaintenance  MachineStage = "maintenance"
	StageRunning      MachineStage = "running"
	StageRebooting    MachineStage = "rebooting"
	StageShuttingDown MachineStage = "shuttingDown"
	StageResetting    MachineStage = "resetting"
	StageUpgrading    MachineStage = "upgrading"
)

// MachinePhase sums up where a machine is on its way.
type MachinePhase string

// The phases, in the order in which a machine goes through them.
const (
	PhasePending     MachinePhase = "Pending"
	PhaseRejected    MachinePhase = "Rejected"
	PhaseApproved    MachinePhase = "Approved"
	PhaseConfiguring MachinePhase = "Configuring"
	PhaseInstalling  MachinePhase = "Installing"
	PhaseRebooting   MachinePhase = "Rebooting"
	PhaseJoining     MachinePhase = "Joining"
	PhaseReady       MachinePhase = "Ready"
	PhaseRemoving    MachinePhase = "Removing"
	PhaseFailed      MachinePhase = "Failed"
)

// TalosMachineStatus is what was observed of a machine.
type TalosMachineStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions say how the machine is: IdentityResolved, Reachable, FingerprintTrusted, ConfigApplied, Installed,
	// Joined, Ready, and PoweredOff while an operation has it off.
	// The server adds Reconciling (on its way) and Stalled (waits for somebody), as kstatus reads them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// stage is what Talos reports: booting, installing, maintenance, running, rebooting, shuttingDown, resetting,
	// upgrading or unknown.
	// +optional
	Stage MachineStage `json:"stage,omitempty"`
	// phase sums up where the machine is on its way: Pending, Rejected, Approved, Configuring, Installing, Rebooting,
	// Joining, Ready, Removing or Failed. For people; programs read the conditions.
	// +optional
	Phase MachinePhase `json:"phase,omitempty"`
	// addresses are the IP addresses that the machine was last reached at, or reports; the first is the one to dial.
	// +optional
	// +listType=atomic
	Addresses []string `json:"addresses,omitempty"`
	// hostname is what the machine calls itself.
	// +optional
	Hostname string `json:"hostname,omitempty"`
	// inventory is the hardware that was seen on the machine.
	// +optional
	Inventory *MachineInventory `json:"inventory,omitempty"`
	// maintenanceFingerprint is the fingerprint of the maintenance certificate that was last seen: base64 of the
	// SHA-256 of its public key, as the machine's console prints it. Talos makes a new key at each boot.
	// +optional
	MaintenanceFingerprint string `json:"maintenanceFingerprint,omitempty"`
	// fingerprintHistory are the last fingerprints with the time each was first seen, newest first, at most 8.
	// +optional
	// +listType=atomic
	FingerprintHistory []FingerprintRecord `json:"fingerprintHistory,omitempty"`
	// talosVersion is the version that runs.
	// +optional
	TalosVersion string `json:"talosVersion,omitempty"`
	// schematicID is the Image Factory schematic that the machine reports.
	// +optional
	SchematicID string `json:"schematicID,omitempty"`
	// settledVersions are the versions that this machine is to have; set from the cluster's intent when it is
	// installed.
	// +optional
	SettledVersions *SettledVersions `json:"settledVersions,omitempty"`
	// nodeName is the name of the Kubernetes Node.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// etcdMemberID is the ID of the machine's etcd member in hexadecimal, for control planes.
	// +optional
	EtcdMemberID string `json:"etcdMemberID,omitempty"`
	// systemDisk is the disk that Talos says it is installed on.
	// +optional
	SystemDisk *SystemDisk `json:"systemDisk,omitempty"`
	// config is the state of the machine's configuration.
	// +optional
	Config *MachineConfigStatus `json:"config,omitempty"`
	// provisioning is the record of the first configuration: what was about to be sent, and that it was accepted.
	// +optional
	Provisioning *ProvisioningStatus `json:"provisioning,omitempty"`
	// removal is the record of the machine's removal, kept so that nothing is done twice.
	// +optional
	Removal *RemovalStatus `json:"removal,omitempty"`
}

// DiskFate is what becomes of a disk.
type DiskFate string

const (
	// DiskWiped loses what is on it: of the system disk, the configuration (STATE) and /var (EPHEMERAL).
	DiskWiped DiskFate = "Wipe"
	// DiskKept is left as it is.
	DiskKept DiskFate = "Keep"
)

// RemovalStatus is how far a removal is.
type RemovalStatus struct {
	// disks are what becomes of each of the machine's disks. Written before the machine is told anything. At most 256.
	// +optional
	// +listType=atomic
	Disks []RemovedDisk `json:"disks,omitempty"`
	// drainStartedAt is when the pods of the machine's Node were first asked to go.
	// +optional
	DrainStartedAt *metav1.Time `json:"drainStartedAt,omitempty"`
	// drainedAt is when nothing was left to wait for on the machine's Node, or waiting was skipped.
	// +optional
	DrainedAt *metav1.Time `json:"drainedAt,omitempty"`
	// etcdMemberID is the etcd member, in hexadecimal, that another control plane takes out for this machine. Written before
	// it is; no other member is taken out then.
	// +optional
	EtcdMemberID string `json:"etcdMemberID,omitempty"`
	// givenUpAt is when it was decided to give the machine up without wiping it.
	// +optional
	GivenUpAt *metav1.Time `json:"givenUpAt,omitempty"`
}

// RemovedDisk is what becomes of a disk of a machine that is removed.
type RemovedDisk struct {
	// fate is Wipe or Keep.
	Fate DiskFate `json:"fate"`
	// role that the disk has: system, ephemeral, storage, userVolume or unused.
	Role DiskRole `json:"role"`
	// serial number of the disk.
	// +optional
	Serial string `json:"serial,omitempty"`
	// wwid is the disk's world wide identifier.
	// +optional
	WWID string `json:"wwid,omitempty"`
	// device is the disk's path in the boot that the machine is told in.
	// +optional
	Device string `json:"device,omitempty"`
	// name of the volume of a userVolume.
	// +optional
	Name string `json:"name,omitempty"`
}

// FingerprintRecord is a fingerprint and when it was first seen.
type FingerprintRecord struct {
	// fingerprint as the machine's console prints it.
	Fingerprint string `json:"fingerprint"`
	// firstSeen is when Ichor first met it.
	FirstSeen metav1.Time `json:"firstSeen"`
}

// MachineInventory is a machine's hardware.
type MachineInventory struct {
	// manufacturer of the system, from SMBIOS.
	// +optional
	Manufacturer string `json:"manufacturer,omitempty"`
	// productName of the system, from SMBIOS.
	// +optional
	ProductName string `json:"productName,omitempty"`
	// cpu is the machine's processors.
	// +optional
	CPU CPUInventory `json:"cpu,omitempty"`
	// memory is the sum of the memory modules.
	// +optional
	Memory resource.Quantity `json:"memory,omitempty"`
	// disks are the block devices, sorted by device.
	// +optional
	// +listType=map
	// +listMapKey=device
	Disks []DiskInventory `json:"disks,omitempty"`
	// links are the physical network interfaces, sorted by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Links []LinkInventory `json:"links,omitempty"`
	// secureBoot is whether the machine booted with SecureBoot.
	// +optional
	SecureBoot bool `json:"secureBoot,omitempty"`
	// unifiedKernelImage is whether the machine booted a unified kernel image, whose kernel arguments are part of it.
	// +optional
	UnifiedKernelImage bool `json:"unifiedKernelImage,omitempty"`
	// kernelLockdown is what the kernel was told to lock down when it booted; empty if nothing.
	// +optional
	KernelLockdown KernelLockdown `json:"kernelLockdown,omitempty"`
}

// CPUInventory is the sum of a machine's processors.
type CPUInventory struct {
	// model of the first processor.
	// +optional
	Model string `json:"model,omitempty"`
	// sockets is the number of processors.
	// +optional
	Sockets int32 `json:"sockets,omitempty"`
	// cores of all processors.
	// +optional
	Cores int32 `json:"cores,omitempty"`
	// threads of all processors.
	// +optional
	Threads int32 `json:"threads,omitempty"`
}

// DiskInventory is one disk.
type DiskInventory struct {
	// device is the path in this boot, for instance /dev/sda. It may change at each boot.
	Device string `json:"device"`
	// size of the disk.
	Size resource.Quantity `json:"size"`
	// model as the disk reports it.
	// +optional
	Model string `json:"model,omitempty"`
	// serial number.
	// +optional
	Serial string `json:"serial,omitempty"`
	// wwid is the world wide identifier.
	// +optional
	WWID string `json:"wwid,omitempty"`
	// transport is nvme, sata, sas, virtio, usb, mmc, ...
	// +optional
	Transport string `json:"transport,omitempty"`
	// busPath is where the disk is attached.
	// +optional
	BusPath string `json:"busPath,omitempty"`
	// rotational is true for spinning disks.
	// +optional
	Rotational bool `json:"rotational,omitempty"`
	// readOnly is true for what can't be written.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`
	// cdrom is true for optical drives.
	// +optional
	CDROM bool `json:"cdrom,omitempty"`
	// signature is the file system or partition table found on the disk, for instance xfs or gpt; empty if none.
	// +optional
	Signature string `json:"signature,omitempty"`
}

// LinkInventory is one physical network interface.
type LinkInventory struct {
	// name in this boot, for instance enp1s0.
	Name string `json:"name"`
	// permanentMAC is the address burnt into the interface.
	// +optional
	PermanentMAC string `json:"permanentMAC,omitempty"`
	// mac is the address it uses.
	// +optional
	MAC string `json:"mac,omitempty"`
	// speedMegabits per second; 0 if unknown.
	// +optional
	SpeedMegabits int32 `json:"speedMegabits,omitempty"`
	// up is true while there is a carrier.
	// +optional
	Up bool `json:"up,omitempty"`
	// addresses with prefix length that the link has.
	// +optional
	// +listType=atomic
	Addresses []string `json:"addresses,omitempty"`
}

// SettledVersions are the versions that a machine is to have.
type SettledVersions struct {
	// talos version, for instance v1.14.5.
	// +optional
	Talos string `json:"talos,omitempty"`
	// kubernetes version of the machine's kubelet and of every component that isn't named below, for instance v1.36.6.
	// +optional
	Kubernetes string `json:"kubernetes,omitempty"`
	// kubeAPIServer is the version of kube-apiserver while an upgrade is on its way, and it is another one than kubernetes.
	// +optional
	KubeAPIServer string `json:"kubeAPIServer,omitempty"`
	// kubeControllerManager is the version of kube-controller-manager, likewise.
	// +optional
	KubeControllerManager string `json:"kubeControllerManager,omitempty"`
	// kubeScheduler is the version of kube-scheduler, likewise.
	// +optional
	KubeScheduler string `json:"kubeScheduler,omitempty"`
	// schematicID of the installer image.
	// +optional
	SchematicID string `json:"schematicID,omitempty"`
	// configContract is the version of Talos that the machine's configuration is written for: the lowest of the one that it
	// booted from and the one that was installed. It stays when the machine runs a newer one. Example: v1.13
	// +optional
	ConfigContract string `json:"configContract,omitempty"`
}

// SystemDisk is the disk Talos is installed on.
type SystemDisk struct {
	// device is the path in this boot.
	Device string `json:"device"`
	// serial number.
	// +optional
	Serial string `json:"serial,omitempty"`
	// wwid is the world wide identifier.
	// +optional
	WWID string `json:"wwid,omitempty"`
}

// MachineConfigStatus is the state of a machine's configuration. Hashes are the hexadecimal SHA-256 of the
// configuration's bytes.
type MachineConfigStatus struct {
	// renderedHash is of what Ichor would send now.
	// +optional
	RenderedHash string `json:"renderedHash,omitempty"`
	// appliedHash is of what Ichor last sent.
	// +optional
	AppliedHash string `json:"appliedHash,omitempty"`
	// runningHash is of what the machine says it runs.
	// +optional
	RunningHash string `json:"runningHash,omitempty"`
	// pendingReboot is true when the machine waits for a reboot before it can have what was rendered: an operation of type
	// configRollout brings it.
	// +optional
	PendingReboot bool `json:"pendingReboot,omitempty"`
	// patches are the TalosConfigPatches in what was applied last, in the order in which they were merged.
	// +optional
	// +listType=map
	// +listMapKey=name
	Patches []ConfigInput `json:"patches,omitempty"`
	// maskedFields are the fields of what was applied last whose values come from Secrets, each as DOCUMENT#/POINTER; they
	// are never shown. Example: v1alpha1#/machine/env/PROXY_PASSWORD
	// +optional
	// +listType=set
	MaskedFields []string `json:"maskedFields,omitempty"`
	// refused is the patch that the machine can't have; while there is one, it keeps its last good configuration.
	// +optional
	Refused *RefusedPatch `json:"refused,omitempty"`
	// driftCount is in how many places what runs differs from what should run.
	// +optional
	DriftCount int32 `json:"driftCount,omitempty"`
	// drift are the places, secrets left out, at most 64.
	// +optional
	// +listType=map
	// +listMapKey=document
	// +listMapKey=path
	Drift []ConfigDrift `json:"drift,omitempty"`
}

// RefusedPatch is a patch that a machine can't have.
type RefusedPatch struct {
	// name of the TalosConfigPatch.
	Name string `json:"name"`
	// path is the faulty field of the patch; empty if it is no single one.
	// +optional
	Path string `json:"path,omitempty"`
	// reason says what is wrong with it.
	Reason string `json:"reason"`
}

// ConfigInput is a patch that a configuration was made with.
type ConfigInput struct {
	// name of the TalosConfigPatch.
	Name string `json:"name"`
	// generation of the patch.
	// +optional
	Generation int64 `json:"generation,omitempty"`
}

// ConfigDrift is one place in which a machine's configuration differs. What is missing or too much as a whole is one place.
type ConfigDrift struct {
	// document that it is in: v1alpha1, or the kind and name of another one. Example: UserVolumeConfig/data
	Document string `json:"document"`
	// path in the document; empty if the document as a whole is missing or too much. Example:
	// machine.sysctls["net.core.somaxconn"]
	Path string `json:"path"`
	// want is the rendered value: a text as it is, anything else as JSON, cut after 256 characters. Empty if there should be
	// nothing.
	// +optional
	Want string `json:"want,omitempty"`
	// have is the running value, as want. Empty if there is nothing.
	// +optional
	Have string `json:"have,omitempty"`
}

// ProvisioningStatus is the record of a first configuration, kept so that none is sent twice.
type ProvisioningStatus struct {
	// fingerprint is the maintenance certificate's fingerprint that the configuration is meant for.
	// +optional
	Fingerprint string `json:"fingerprint,omitempty"`
	// configHash of the configuration that is, or was, sent.
	// +optional
	ConfigHash string `json:"configHash,omitempty"`
	// address it is, or was, sent to.
	// +optional
	Address string `json:"address,omitempty"`
	// intendedAt is when it was decided to send it. Written before anything is sent.
	// +optional
	IntendedAt *metav1.Time `json:"intendedAt,omitempty"`
	// appliedAt is when the machine was seen to have taken it.
	// +optional
	AppliedAt *metav1.Time `json:"appliedAt,omitempty"`
	// attempts counts the configurations sent since the approval.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// convergedAt is when the machine first became Ready.
	// +optional
	ConvergedAt *metav1.Time `json:"convergedAt,omitempty"`
}
