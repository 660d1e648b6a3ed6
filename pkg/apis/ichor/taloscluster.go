// SPDX-License-Identifier: Apache-2.0

package ichor

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosCluster is a Kubernetes cluster of Talos Linux machines that Ichor manages. It holds what is the same for all
// its machines: versions, endpoint, networks and where to look for new machines.
type TalosCluster struct {
	metav1.TypeMeta
	// metadata is the standard object's metadata. The name is the cluster's name in Talos and can't be changed.
	metav1.ObjectMeta
	// spec is what the cluster should be.
	Spec TalosClusterSpec
	// status is what was observed, written by Ichor alone.
	Status TalosClusterStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosClusterList is a list of TalosClusters.
type TalosClusterList struct {
	metav1.TypeMeta
	// metadata is the standard list's metadata.
	metav1.ListMeta
	// items are the clusters.
	Items []TalosCluster
}

// SecretsPolicy says whether Ichor may make a secrets bundle.
type SecretsPolicy string

const (
	// SecretsPolicyRequire applies nothing anywhere while the bundle is missing.
	SecretsPolicyRequire SecretsPolicy = "Require"
	// SecretsPolicyGenerate makes a bundle once, for a cluster that has no approved machine yet.
	SecretsPolicyGenerate SecretsPolicy = "Generate"
)

// DriftPolicy says what happens when a machine's running configuration differs from the rendered one.
type DriftPolicy string

const (
	// DriftPolicyReport shows the difference and changes nothing.
	DriftPolicyReport DriftPolicy = "Report"
	// DriftPolicyReapply applies the rendered configuration again where that needs no reboot.
	DriftPolicyReapply DriftPolicy = "Reapply"
)

// ReprovisionPolicy says what happens with an approved machine that comes back with an empty disk.
type ReprovisionPolicy string

const (
	// ReprovisionAutomatic provisions it again, if everything that was approved is still the same.
	ReprovisionAutomatic ReprovisionPolicy = "Automatic"
	// ReprovisionConfirm waits for a person.
	ReprovisionConfirm ReprovisionPolicy = "Confirm"
)

// ClusterDeletionPolicy says what happens to a cluster's machines when its object is deleted.
type ClusterDeletionPolicy string

const (
	// ClusterDeletionRefuse refuses to delete a cluster that machines belong to.
	ClusterDeletionRefuse ClusterDeletionPolicy = "Refuse"
	// ClusterDeletionOrphan lets all machines go as they are: nothing is written to any of them.
	ClusterDeletionOrphan ClusterDeletionPolicy = "Orphan"
	// ClusterDeletionDestroy wipes all machines: the workers, then the control planes one by one.
	ClusterDeletionDestroy ClusterDeletionPolicy = "Destroy"
)

// TalosClusterSpec is what a cluster should be.
type TalosClusterSpec struct {
	// talosVersion is the Talos version that new machines are installed with, and what "out of date" is measured
	// against. Changing it moves no running machine. Defaults to v1.14.5.
	TalosVersion string
	// kubernetesVersion is the Kubernetes version of new machines. Changing it moves no running machine. Defaults to
	// v1.36.6.
	KubernetesVersion string
	// secretsRef names the Secret with the cluster's secrets bundle (key bundle.yaml): its certificate authorities,
	// tokens and encryption keys. Only the controller reads it. Can't be changed.
	SecretsRef SecretReference
	// secretsPolicy is Require (the bundle must exist) or Generate (made once for a cluster that has no approved
	// machine). Defaults to Require.
	SecretsPolicy SecretsPolicy
	// controlPlane is how many control planes there are and where the Kubernetes API is reached.
	ControlPlane ControlPlane
	// network holds the cluster's address ranges. Can't be changed.
	Network ClusterNetwork
	// cni is the network plugin that Ichor installs. Changing it needs the verb "configure" on "talosclusters/cni".
	CNI CNI
	// driftPolicy is Report (show differences) or Reapply (apply again where no reboot is needed). Defaults to Report.
	DriftPolicy DriftPolicy
	// discovery is where Ichor looks for machines in maintenance mode.
	Discovery Discovery
	// install is where the installer image comes from.
	Install Install
	// hardening holds settings that make machines stricter than Talos' defaults.
	Hardening Hardening
	// apply bounds how many machines are changed at a time.
	Apply ApplyPolicy
	// reprovision says what happens with an approved machine that comes back with an empty disk.
	Reprovision Reprovision
	// deletionPolicy is what deleting this object does to the cluster's machines: Refuse (it can't be deleted while it has
	// any), Orphan (their objects go, and nothing is written to any machine) or Destroy (workers and then control planes are
	// wiped, and with the last of them this API goes). Deleting a cluster with machines needs the verb "remove" on
	// "talosmachines/removal". While the cluster is being deleted, only Destroy can be changed, to Orphan. Defaults to Refuse.
	DeletionPolicy ClusterDeletionPolicy
	// deletionConsent is the name of the cluster, typed once more. Required with Destroy, refused otherwise.
	DeletionConsent string
	// locked keeps Ichor from taking any machine of the cluster down: operations don't begin another machine, none is
	// removed, and the cluster isn't deleted with its machines. New machines are provisioned, and what needs no reboot is
	// applied. Defaults to false.
	Locked bool
}

// SecretReference names a Secret.
type SecretReference struct {
	// namespace of the Secret, for instance ichor-system.
	Namespace string
	// name of the Secret, for instance prod-secrets.
	Name string
}

// ControlPlane is the cluster's control plane.
type ControlPlane struct {
	// count is the number of control planes wanted, 1 to 9; odd numbers survive failures best. At most count + 1 can be
	// approved, so that a replacement can join before the old one leaves.
	Count int32
	// endpoint is where clients and machines reach the Kubernetes API: a load balancer, a virtual IP or the one control
	// plane's address.
	Endpoint Endpoint
}

// Endpoint is a host and a port.
type Endpoint struct {
	// host is an IP address or a DNS name, for instance 10.0.0.10.
	Host string
	// port is a TCP port. Defaults to 6443.
	Port int32
}

// ClusterNetwork holds a cluster's address ranges.
type ClusterNetwork struct {
	// podCIDRs are the ranges that pods get addresses from: one, or one for IPv4 and one for IPv6. Defaults to
	// 10.244.0.0/16.
	PodCIDRs []string
	// serviceCIDRs are the ranges of Service addresses: one, or one for IPv4 and one for IPv6. Defaults to 10.96.0.0/12.
	ServiceCIDRs []string
	// dnsDomain is the cluster's DNS domain. Defaults to cluster.local.
	DNSDomain string
}

// CNI is the network plugin of a cluster; with no member set, Ichor installs none.
type CNI struct {
	// cilium installs Cilium by its Helm chart.
	Cilium *Cilium
}

// Cilium is an installation of Cilium.
type Cilium struct {
	// version of the chart, for instance 1.20.4. Defaults to 1.20.4.
	Version string
	// values are the chart's values, as an object.
	Values *JSONObject
}

// Discovery is where and how often Ichor looks for machines.
type Discovery struct {
	// subnets are scanned for the Talos API (TCP port 50000). A subnet holds at most 65,536 addresses.
	Subnets []DiscoverySubnet
	// addresses are looked at besides the subnets, for instance 10.0.9.7.
	Addresses []string
	// interval is the time between two scans, at least 10s. Defaults to 5m.
	Interval metav1.Duration
	// scanRequest asks for a scan at once: whenever it is set to a text that differs from
	// status.discovery.scanRequest, a scan starts without waiting for the interval. Any text of up to 64 characters.
	ScanRequest string
}

// DiscoverySubnet is a range of addresses to scan.
type DiscoverySubnet struct {
	// cidr is the range, for instance 10.0.0.0/24.
	CIDR string
}

// Install is where the installer image comes from.
type Install struct {
	// schematicID is the Image Factory schematic for machines that report none themselves. Empty means the plain
	// schematic without extensions.
	SchematicID string
	// registry is the host (and path) of the Image Factory's registry. Defaults to factory.talos.dev.
	Registry string
}

// KernelLockdown is the kernel's lockdown mode.
type KernelLockdown string

const (
	// KernelLockdownNone leaves the mode to the image.
	KernelLockdownNone KernelLockdown = ""
	// KernelLockdownIntegrity forbids changing the running kernel.
	KernelLockdownIntegrity KernelLockdown = "integrity"
	// KernelLockdownConfidentiality forbids reading kernel memory too.
	KernelLockdownConfidentiality KernelLockdown = "confidentiality"
)

// AuditPolicy is what the kube-apiserver logs.
type AuditPolicy string

const (
	// AuditPolicyTalos is Talos' own: every request, without bodies.
	AuditPolicyTalos AuditPolicy = ""
	// AuditPolicyIchor leaves out the noise of the machinery, and keeps who did what.
	AuditPolicyIchor AuditPolicy = "Ichor"
)

// Hardening holds settings stricter than Talos' defaults.
type Hardening struct {
	// secureBoot installs the SecureBoot variant of the image, and expects machines to have booted with SecureBoot.
	// Defaults to false.
	SecureBoot bool
	// kernelLockdown is empty, integrity or confidentiality: the least that the kernel of each machine is to be locked
	// down to. Defaults to empty: what the image does. A kernel takes this from its command line, which is part of the
	// image: a SecureBoot image has confidentiality, for others it is written into the schematic
	// (customization.extraKernelArgs). Only where a machine boots by GRUB, with the plain schematic, is it rendered into
	// its configuration (machine.install.extraKernelArgs), and counts from the next installation or upgrade. The condition
	// Hardened of a machine tells.
	KernelLockdown KernelLockdown
	// kubeletServingCertificates makes kubelets ask the cluster for their serving certificates, instead of signing them
	// themselves, and Ichor approve those of its machines. Defaults to false.
	KubeletServingCertificates bool
	// auditPolicy is empty or Ichor. Defaults to empty: the policy that Talos gives the kube-apiserver. Ichor is that of
	// artifacts/audit/kube-apiserver.yaml, which a cluster that Ichor creates begins with. A patch of
	// cluster.apiServer.auditPolicy replaces either.
	AuditPolicy AuditPolicy
}

// ApplyPolicy bounds how many machines are changed at a time.
type ApplyPolicy struct {
	// maxParallel is how many workers are provisioned or changed at a time, 1 to 500. Control planes always go one at a
	// time. Defaults to 10.
	MaxParallel int32
}

// Reprovision says what happens with approved machines that come back with an empty disk.
type Reprovision struct {
	// controlPlanes is Automatic or Confirm. Defaults to Automatic.
	ControlPlanes ReprovisionPolicy
}

// TalosClusterStatus is what was observed of a cluster.
type TalosClusterStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	ObservedGeneration int64
	// conditions say how the cluster is: Available, SecretsReady, Discovered.
	Conditions []metav1.Condition
	// controlPlanes counts the control planes.
	ControlPlanes ControlPlaneCounts
	// controlPlaneSlots are the places that approved control planes hold, at most spec.controlPlane.count + 1. They are
	// written by the API server's approval gate and by nobody else.
	ControlPlaneSlots []ControlPlaneSlot
	// machines counts the cluster's machines.
	Machines MachineCounts
	// etcdMembers are the members of the cluster's etcd as a healthy member reports them.
	EtcdMembers []EtcdMember
	// discovery is how far the search for machines got and what it met.
	Discovery DiscoveryStatus
	// secretsBundleHash tells whether the secrets bundle is still the one this cluster was made with: the SHA-256 of
	// its certificate authorities' public certificates and of a keyed digest (HMAC-SHA256) of everything else in it, which
	// gives nothing of it away.
	SecretsBundleHash string
	// activeOperation is the TalosOperation that may disrupt machines of the cluster; others wait until it has ended.
	ActiveOperation *ActiveOperation
	// quarantined are machines that were removed without being wiped (spec.removal.force): they still hold the cluster's
	// configuration. One that comes back is told of (status.discovery.hosts, condition MachinesQuarantined), its Node is
	// cordoned, and nothing is written to it. It ends when a person approves the machine again: reset by hand and found anew,
	// or entered as Adopted. At most 64.
	Quarantined []QuarantinedMachine
}

// QuarantinedMachine is a machine that was removed without being wiped.
type QuarantinedMachine struct {
	// machineUID of the TalosMachine that was removed.
	MachineUID types.UID
	// name of the TalosMachine that was removed.
	Name string
	// identity of the machine.
	Identity MachineIdentity
	// role that the machine had.
	Role MachineRole
	// nodeName is the name of its Kubernetes Node.
	NodeName string
	// etcdMemberID is the etcd member that was removed for it, in hexadecimal.
	EtcdMemberID string
	// by is the user who consented.
	By string
	// at is when the machine was given up.
	At metav1.Time
	// reason is why it wasn't wiped, in words.
	Reason string
}

// ActiveOperation is a claim on a cluster.
type ActiveOperation struct {
	// name of the TalosOperation.
	Name string
	// uid of the TalosOperation.
	UID types.UID
	// since is when it claimed the cluster.
	Since metav1.Time
}

// ControlPlaneCounts counts control planes.
type ControlPlaneCounts struct {
	// approved is the number of slots held.
	Approved int32
	// ready is the number of control planes whose Ready condition is True.
	Ready int32
	// limit is the number of slots there are: spec.controlPlane.count + 1.
	Limit int32
}

// ControlPlaneSlot is the place of one approved control plane.
type ControlPlaneSlot struct {
	// machineUID is the UID of the TalosMachine that holds the slot.
	MachineUID types.UID
	// name of the TalosMachine.
	Name string
	// hostname of the control plane; no two slots have the same, because a control plane that joins etcd replaces the
	// member with its hostname.
	Hostname string
	// token changes with every claim; a slot is only released by someone who knows its current token.
	Token string
	// at is when the slot was last claimed.
	At metav1.Time
}

// MachineCounts counts machines by what was decided about them.
type MachineCounts struct {
	// pending machines wait for a person.
	Pending int32
	// approved machines belong to the cluster.
	Approved int32
	// rejected machines are left alone.
	Rejected int32
	// ready machines are approved and their Ready condition is True.
	Ready int32
	// workers is the number of approved workers.
	Workers int32
	// workersReady is how many of them are Ready.
	WorkersReady int32
}

// EtcdMember is a member of etcd.
type EtcdMember struct {
	// id is the member's ID, in hexadecimal as etcdctl prints it.
	ID string
	// hostname is the member's name in etcd.
	Hostname string
	// learner is true until the member was promoted to a voter.
	Learner bool
	// machine is the TalosMachine that runs the member; empty when Ichor knows none.
	Machine string
}

// DiscoveryPhase says whether a scan runs.
type DiscoveryPhase string

const (
	// DiscoveryIdle means that the next scan waits for its time.
	DiscoveryIdle DiscoveryPhase = "Idle"
	// DiscoveryScanning means that a scan runs.
	DiscoveryScanning DiscoveryPhase = "Scanning"
)

// DiscoveryStatus is how far the search for machines got.
type DiscoveryStatus struct {
	// phase is Idle or Scanning. A scan of less than five seconds is never shown as Scanning.
	Phase DiscoveryPhase
	// scanRequest is the spec.discovery.scanRequest that the last finished scan answered.
	ScanRequest string
	// observedGeneration is the generation whose subnets and addresses the last finished scan covered.
	ObservedGeneration int64
	// total is the number of addresses of the running, else of the last finished, scan.
	Total int32
	// done is how many of them were classified.
	Done int32
	// cursor is the address a running scan carries on from if the controller restarts.
	Cursor string
	// maintenance counts the addresses where a machine waits in maintenance mode.
	Maintenance int32
	// alreadyConfigured counts the addresses where a configured Talos machine answered.
	AlreadyConfigured int32
	// notTalos counts the addresses where something else answered.
	NotTalos int32
	// unreachable counts the addresses where nothing answered.
	Unreachable int32
	// hosts are the odd ones, sorted by address, at most 256: configured machines that aren't this cluster's, what isn't
	// Talos, addresses of spec.discovery.addresses where nothing answers, and machines that couldn't be read.
	Hosts []DiscoveredHost
}

// HostClass says what answers at an address.
type HostClass string

const (
	// HostMaintenance is a Talos machine that waits in maintenance mode.
	HostMaintenance HostClass = "Maintenance"
	// HostAlreadyConfigured is a Talos machine that has a configuration: it demands a client certificate.
	HostAlreadyConfigured HostClass = "AlreadyConfigured"
	// HostOursUnknown is a configured machine that this cluster's certificate authority vouches for, and that no
	// TalosMachine describes. It can be adopted.
	HostOursUnknown HostClass = "OursUnknown"
	// HostQuarantined is a configured machine of this cluster that was removed without being wiped, and came back.
	HostQuarantined HostClass = "Quarantined"
	// HostNotTalos is something else.
	HostNotTalos HostClass = "NotTalos"
	// HostUnreachable means that nothing answered in time.
	HostUnreachable HostClass = "Unreachable"
)

// DiscoveredHost is what was met at one address.
type DiscoveredHost struct {
	// address is the IP address.
	Address string
	// class is Maintenance, AlreadyConfigured, OursUnknown, Quarantined, NotTalos or Unreachable.
	Class HostClass
	// message says in words what answered, for instance "an SSH server".
	Message string
}
