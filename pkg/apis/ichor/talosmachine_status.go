// SPDX-License-Identifier: Apache-2.0

package ichor

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
	ObservedGeneration int64
	// conditions say how the machine is: IdentityResolved, Reachable, FingerprintTrusted, ConfigApplied, Installed,
	// Joined, Ready, and PoweredOff while an operation has it off.
	Conditions []metav1.Condition
	// stage is what Talos reports: booting, installing, maintenance, running, rebooting, shuttingDown, resetting,
	// upgrading or unknown.
	Stage MachineStage
	// phase sums up where the machine is on its way: Pending, Rejected, Approved, Configuring, Installing, Rebooting,
	// Joining, Ready, Removing or Failed. For people; programs read the conditions.
	Phase MachinePhase
	// addresses are the IP addresses that the machine was last reached at, or reports; the first is the one to dial.
	Addresses []string
	// hostname is what the machine calls itself.
	Hostname string
	// inventory is the hardware that was seen on the machine.
	Inventory *MachineInventory
	// maintenanceFingerprint is the fingerprint of the maintenance certificate that was last seen: base64 of the
	// SHA-256 of its public key, as the machine's console prints it. Talos makes a new key at each boot.
	MaintenanceFingerprint string
	// fingerprintHistory are the last fingerprints with the time each was first seen, newest first, at most 8.
	FingerprintHistory []FingerprintRecord
	// talosVersion is the version that runs.
	TalosVersion string
	// schematicID is the Image Factory schematic that the machine reports.
	SchematicID string
	// settledVersions are the versions that this machine is to have; set from the cluster's intent when it is
	// installed.
	SettledVersions *SettledVersions
	// nodeName is the name of the Kubernetes Node.
	NodeName string
	// etcdMemberID is the ID of the machine's etcd member in hexadecimal, for control planes.
	EtcdMemberID string
	// systemDisk is the disk that Talos says it is installed on.
	SystemDisk *SystemDisk
	// config is the state of the machine's configuration.
	Config *MachineConfigStatus
	// provisioning is the record of the first configuration: what was about to be sent, and that it was accepted.
	Provisioning *ProvisioningStatus
	// removal is the record of the machine's removal, kept so that nothing is done twice.
	Removal *RemovalStatus
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
	Disks []RemovedDisk
	// drainStartedAt is when the pods of the machine's Node were first asked to go.
	DrainStartedAt *metav1.Time
	// drainedAt is when nothing was left to wait for on the machine's Node, or waiting was skipped.
	DrainedAt *metav1.Time
	// etcdMemberID is the etcd member, in hexadecimal, that another control plane takes out for this machine. Written before
	// it is; no other member is taken out then.
	EtcdMemberID string
	// givenUpAt is when it was decided to give the machine up without wiping it.
	GivenUpAt *metav1.Time
}

// RemovedDisk is what becomes of a disk of a machine that is removed.
type RemovedDisk struct {
	// fate is Wipe or Keep.
	Fate DiskFate
	// role that the disk has: system, ephemeral, storage, userVolume or unused.
	Role DiskRole
	// serial number of the disk.
	Serial string
	// wwid is the disk's world wide identifier.
	WWID string
	// device is the disk's path in the boot that the machine is told in.
	Device string
	// name of the volume of a userVolume.
	Name string
}

// FingerprintRecord is a fingerprint and when it was first seen.
type FingerprintRecord struct {
	// fingerprint as the machine's console prints it.
	Fingerprint string
	// firstSeen is when Ichor first met it.
	FirstSeen metav1.Time
}

// MachineInventory is a machine's hardware.
type MachineInventory struct {
	// manufacturer of the system, from SMBIOS.
	Manufacturer string
	// productName of the system, from SMBIOS.
	ProductName string
	// cpu is the machine's processors.
	CPU CPUInventory
	// memory is the sum of the memory modules.
	Memory resource.Quantity
	// disks are the block devices, sorted by device.
	Disks []DiskInventory
	// links are the physical network interfaces, sorted by name.
	Links []LinkInventory
	// secureBoot is whether the machine booted with SecureBoot.
	SecureBoot bool
	// unifiedKernelImage is whether the machine booted a unified kernel image, whose kernel arguments are part of it.
	UnifiedKernelImage bool
	// kernelLockdown is what the kernel was told to lock down when it booted; empty if nothing.
	KernelLockdown KernelLockdown
}

// CPUInventory is the sum of a machine's processors.
type CPUInventory struct {
	// model of the first processor.
	Model string
	// sockets is the number of processors.
	Sockets int32
	// cores of all processors.
	Cores int32
	// threads of all processors.
	Threads int32
}

// DiskInventory is one disk.
type DiskInventory struct {
	// device is the path in this boot, for instance /dev/sda. It may change at each boot.
	Device string
	// size of the disk.
	Size resource.Quantity
	// model as the disk reports it.
	Model string
	// serial number.
	Serial string
	// wwid is the world wide identifier.
	WWID string
	// transport is nvme, sata, sas, virtio, usb, mmc, ...
	Transport string
	// busPath is where the disk is attached.
	BusPath string
	// rotational is true for spinning disks.
	Rotational bool
	// readOnly is true for what can't be written.
	ReadOnly bool
	// cdrom is true for optical drives.
	CDROM bool
	// signature is the file system or partition table found on the disk, for instance xfs or gpt; empty if none.
	Signature string
}

// LinkInventory is one physical network interface.
type LinkInventory struct {
	// name in this boot, for instance enp1s0.
	Name string
	// permanentMAC is the address burnt into the interface.
	PermanentMAC string
	// mac is the address it uses.
	MAC string
	// speedMegabits per second; 0 if unknown.
	SpeedMegabits int32
	// up is true while there is a carrier.
	Up bool
	// addresses with prefix length that the link has.
	Addresses []string
}

// SettledVersions are the versions that a machine is to have.
type SettledVersions struct {
	// talos version, for instance v1.14.5.
	Talos string
	// kubernetes version of the machine's kubelet and of every component that isn't named below, for instance v1.36.6.
	Kubernetes string
	// kubeAPIServer is the version of kube-apiserver while an upgrade is on its way, and it is another one than kubernetes.
	KubeAPIServer string
	// kubeControllerManager is the version of kube-controller-manager, likewise.
	KubeControllerManager string
	// kubeScheduler is the version of kube-scheduler, likewise.
	KubeScheduler string
	// schematicID of the installer image.
	SchematicID string
	// configContract is the version of Talos that the machine's configuration is written for.
	ConfigContract string
}

// SystemDisk is the disk Talos is installed on.
type SystemDisk struct {
	// device is the path in this boot.
	Device string
	// serial number.
	Serial string
	// wwid is the world wide identifier.
	WWID string
}

// MachineConfigStatus is the state of a machine's configuration. Hashes are the hexadecimal SHA-256 of the
// configuration's bytes.
type MachineConfigStatus struct {
	// renderedHash is of what Ichor would send now.
	RenderedHash string
	// appliedHash is of what Ichor last sent.
	AppliedHash string
	// runningHash is of what the machine says it runs.
	RunningHash string
	// pendingReboot is true when the machine waits for a reboot before it can have what was rendered.
	PendingReboot bool
	// patches are the TalosConfigPatches in what was applied last, in the order in which they were merged.
	Patches []ConfigInput
	// maskedFields are the fields of what was applied last whose values come from Secrets.
	MaskedFields []string
	// refused is the patch that the machine can't have.
	Refused *RefusedPatch
	// driftCount is in how many places what runs differs from what should run.
	DriftCount int32
	// drift are the places, secrets left out, at most 64.
	Drift []ConfigDrift
}

// RefusedPatch is a patch that a machine can't have.
type RefusedPatch struct {
	// name of the TalosConfigPatch.
	Name string
	// path is the faulty field of the patch.
	Path string
	// reason says what is wrong with it.
	Reason string
}

// ConfigInput is a patch that a configuration was made with.
type ConfigInput struct {
	// name of the TalosConfigPatch.
	Name string
	// generation of the patch.
	Generation int64
}

// ConfigDrift is one place in which a machine's configuration differs.
type ConfigDrift struct {
	// document that it is in.
	Document string
	// path in the document.
	Path string
	// want is the rendered value.
	Want string
	// have is the running value.
	Have string
}

// ProvisioningStatus is the record of a first configuration, kept so that none is sent twice.
type ProvisioningStatus struct {
	// fingerprint is the maintenance certificate's fingerprint that the configuration is meant for.
	Fingerprint string
	// configHash of the configuration that is, or was, sent.
	ConfigHash string
	// address it is, or was, sent to.
	Address string
	// intendedAt is when it was decided to send it. Written before anything is sent.
	IntendedAt *metav1.Time
	// appliedAt is when the machine was seen to have taken it.
	AppliedAt *metav1.Time
	// attempts counts the configurations sent since the approval.
	Attempts int32
	// convergedAt is when the machine first became Ready.
	ConvergedAt *metav1.Time
}
