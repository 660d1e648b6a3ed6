// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosCluster is a Kubernetes cluster of Talos Linux machines that Ichor manages. It holds what is the same for all
// its machines: versions, endpoint, networks and where to look for new machines.
type TalosCluster struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata. The name is the cluster's name in Talos and can't be changed.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is what the cluster should be.
	Spec TalosClusterSpec `json:"spec"`
	// status is what was observed, written by Ichor alone.
	// +optional
	Status TalosClusterStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosClusterList is a list of TalosClusters.
type TalosClusterList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the clusters.
	Items []TalosCluster `json:"items"`
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
	// +optional
	TalosVersion string `json:"talosVersion,omitempty"`
	// kubernetesVersion is the Kubernetes version of new machines. Changing it moves no running machine. Defaults to
	// v1.36.6.
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// secretsRef names the Secret with the cluster's secrets bundle (key bundle.yaml): its certificate authorities,
	// tokens and encryption keys. Only the controller reads it. Can't be changed.
	SecretsRef SecretReference `json:"secretsRef"`
	// secretsPolicy is Require (the bundle must exist) or Generate (made once for a cluster that has no approved
	// machine). Defaults to Require.
	// +optional
	SecretsPolicy SecretsPolicy `json:"secretsPolicy,omitempty"`
	// controlPlane is how many control planes there are and where the Kubernetes API is reached.
	ControlPlane ControlPlane `json:"controlPlane"`
	// network holds the cluster's address ranges. Can't be changed.
	// +optional
	Network ClusterNetwork `json:"network,omitempty"`
	// cni is the network plugin that Ichor installs. Changing it needs the verb "configure" on "talosclusters/cni".
	// +optional
	CNI CNI `json:"cni,omitempty"`
	// driftPolicy is Report (show differences) or Reapply (apply again where no reboot is needed). Defaults to Report.
	// +optional
	DriftPolicy DriftPolicy `json:"driftPolicy,omitempty"`
	// discovery is where Ichor looks for machines in maintenance mode.
	// +optional
	Discovery Discovery `json:"discovery,omitempty"`
	// install is where the installer image comes from.
	// +optional
	Install Install `json:"install,omitempty"`
	// hardening holds settings that make machines stricter than Talos' defaults.
	// +optional
	Hardening Hardening `json:"hardening,omitempty"`
	// apply bounds how many machines are changed at a time.
	// +optional
	Apply ApplyPolicy `json:"apply,omitempty"`
	// reprovision says what happens with an approved machine that comes back with an empty disk.
	// +optional
	Reprovision Reprovision `json:"reprovision,omitempty"`
	// deletionPolicy is what deleting this object does to the cluster's machines: Refuse (it can't be deleted while it has
	// any), Orphan (their objects go, and nothing is written to any machine) or Destroy (workers and then control planes are
	// wiped, and with the last of them this API goes). Deleting a cluster with machines needs the verb "remove" on
	// "talosmachines/removal". While the cluster is being deleted, only Destroy can be changed, to Orphan. Defaults to Refuse.
	// +optional
	DeletionPolicy ClusterDeletionPolicy `json:"deletionPolicy,omitempty"`
	// deletionConsent is the name of the cluster, typed once more. Required with Destroy, refused otherwise.
	// +optional
	DeletionConsent string `json:"deletionConsent,omitempty"`
	// locked keeps Ichor from taking any machine of the cluster down: operations don't begin another machine, none is
	// removed, and the cluster isn't deleted with its machines. New machines are provisioned, and what needs no reboot is
	// applied. Defaults to false.
	// +optional
	Locked bool `json:"locked,omitempty"`
}

// SecretReference names a Secret.
type SecretReference struct {
	// namespace of the Secret, for instance ichor-system.
	Namespace string `json:"namespace"`
	// name of the Secret, for instance prod-secrets.
	Name string `json:"name"`
}

// ControlPlane is the cluster's control plane.
type ControlPlane struct {
	// count is the number of control planes wanted, 1 to 9; odd numbers survive failures best. At most count + 1 can be
	// approved, so that a replacement can join before the old one leaves.
	Count int32 `json:"count"`
	// endpoint is where clients and machines reach the Kubernetes API: a load balancer, a virtual IP or the one control
	// plane's address.
	Endpoint Endpoint `json:"endpoint"`
}

// Endpoint is a host and a port.
type Endpoint struct {
	// host is an IP address or a DNS name, for instance 10.0.0.10.
	Host string `json:"host"`
	// port is a TCP port. Defaults to 6443.
	// +optional
	Port int32 `json:"port,omitempty"`
}

// ClusterNetwork holds a cluster's address ranges.
type ClusterNetwork struct {
	// podCIDRs are the ranges that pods get addresses from: one, or one for IPv4 and one for IPv6. Defaults to
	// 10.244.0.0/16.
	// +optional
	// +listType=atomic
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// serviceCIDRs are the ranges of Service addresses: one, or one for IPv4 and one for IPv6. Defaults to 10.96.0.0/12.
	// +optional
	// +listType=atomic
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`
	// dnsDomain is the cluster's DNS domain. Defaults to cluster.local.
	// +optional
	DNSDomain string `json:"dnsDomain,omitempty"`
}

// CNI is the network plugin of a cluster; with no member set, Ichor installs none.
type CNI struct {
	// cilium installs Cilium by its Helm chart.
	// +optional
	Cilium *Cilium `json:"cilium,omitempty"`
}

// Cilium is an installation of Cilium.
type Cilium struct {
	// version of the chart, for instance 1.20.4. Defaults to 1.20.4.
	// +optional
	Version string `json:"version,omitempty"`
	// values are the chart's values, as an object.
	// +optional
	Values *JSONObject `json:"values,omitempty"`
}

// Discovery is where and how often Ichor looks for machines.
type Discovery struct {
	// subnets are scanned for the Talos API (TCP port 50000). A subnet holds at most 65,536 addresses.
	// +optional
	// +listType=map
	// +listMapKey=cidr
	Subnets []DiscoverySubnet `json:"subnets,omitempty"`
	// addresses are looked at besides the subnets, for instance 10.0.9.7.
	// +optional
	// +listType=set
	Addresses []string `json:"addresses,omitempty"`
	// interval is the time between two scans, at least 10s. Defaults to 5m.
	// +optional
	Interval metav1.Duration `json:"interval,omitempty"`
	// scanRequest asks for a scan at once: whenever it is set to a text that differs from
	// status.discovery.scanRequest, a scan starts without waiting for the interval. Any text of up to 64 characters.
	// +optional
	ScanRequest string `json:"scanRequest,omitempty"`
}

// DiscoverySubnet is a range of addresses to scan.
type DiscoverySubnet struct {
	// cidr is the range, for instance 10.0.0.0/24.
	CIDR string `json:"cidr"`
}

// Install is where the installer image comes from.
type Install struct {
	// schematicID is the Image Factory schematic for machines that report none themselves. Empty means the plain
	// schematic without extensions.
	// +optional
	SchematicID string `json:"schematicID,omitempty"`
	// registry is the host (and path) of the Image Factory's registry. Defaults to factory.talos.dev.
	// +optional
	Registry string `json:"registry,omitempty"`
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
	// +optional
	SecureBoot bool `json:"secureBoot,omitempty"`
	// kernelLockdown is empty, integrity or confidentiality: the least that the kernel of each machine is to be locked
	// down to. Defaults to empty: what the image does. A kernel takes this from its command line, which is part of the
	// image: a SecureBoot image has confidentiality, for others it is written into the schematic
	// (customization.extraKernelArgs). Only where a machine boots by GRUB, with the plain schematic, is it rendered into
	// its configuration (machine.install.extraKernelArgs), and counts from the next installation or upgrade. The condition
	// Hardened of a machine tells.
	// +optional
	KernelLockdown KernelLockdown `json:"kernelLockdown,omitempty"`
	// kubeletServingCertificates makes kubelets ask the cluster for their serving certificates, instead of signing them
	// themselves, and Ichor approve those of its machines. Defaults to false.
	// +optional
	KubeletServingCertificates bool `json:"kubeletServingCertificates,omitempty"`
	// auditPolicy is empty or Ichor. Defaults to empty: the policy that Talos gives the kube-apiserver. Ichor is that of
	// artifacts/audit/kube-apiserver.yaml, which a cluster that Ichor creates begins with. A patch of
	// cluster.apiServer.auditPolicy replaces either.
	// +optional
	AuditPolicy AuditPolicy `json:"auditPolicy,omitempty"`
}

// ApplyPolicy bounds how many machines are changed at a time.
type ApplyPolicy struct {
	// maxParallel is how many workers are provisioned or changed at a time, 1 to 500. Control planes always go one at a
	// time. Defaults to 10.
	// +optional
	MaxParallel int32 `json:"maxParallel,omitempty"`
}

// Reprovision says what happens with approved machines that come back with an empty disk.
type Reprovision struct {
	// controlPlanes is Automatic or Confirm. Defaults to Automatic.
	// +optional
	ControlPlanes ReprovisionPolicy `json:"controlPlanes,omitempty"`
}

// TalosClusterStatus is what was observed of a cluster.
type TalosClusterStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions say how the cluster is: Available, SecretsReady, Discovered.
	// The server adds Reconciling (on its way) and Stalled (waits for somebody), as kstatus reads them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// controlPlanes counts the control planes.
	// +optional
	ControlPlanes ControlPlaneCounts `json:"controlPlanes,omitempty"`
	// controlPlaneSlots are the places that approved control planes hold, at most spec.controlPlane.count + 1. They are
	// written by the API server's approval gate and by nobody else.
	// +optional
	// +listType=map
	// +listMapKey=machineUID
	ControlPlaneSlots []ControlPlaneSlot `json:"controlPlaneSlots,omitempty"`
	// machines counts the cluster's machines.
	// +optional
	Machines MachineCounts `json:"machines,omitempty"`
	// etcdMembers are the members of the cluster's etcd as a healthy member reports them.
	// +optional
	// +listType=map
	// +listMapKey=id
	EtcdMembers []EtcdMember `json:"etcdMembers,omitempty"`
	// discovery is how far the search for machines got and what it met.
	// +optional
	Discovery DiscoveryStatus `json:"discovery,omitempty"`
	// secretsBundleHash tells whether the secrets bundle is still the one this cluster was made with: the SHA-256 of
	// its certificate authorities' public certificates and of a keyed digest (HMAC-SHA256) of everything else in it, which
	// gives nothing of it away.
	// +optional
	SecretsBundleHash string `json:"secretsBundleHash,omitempty"`
	// activeOperation is the TalosOperation that may disrupt machines of the cluster; others wait until it has ended.
	// +optional
	ActiveOperation *ActiveOperation `json:"activeOperation,omitempty"`
	// quarantined are machines that were removed without being wiped (spec.removal.force): they still hold the cluster's
	// configuration. One that comes back is told of (status.discovery.hosts, condition MachinesQuarantined), its Node is
	// cordoned, and nothing is written to it. It ends when a person approves the machine again: reset by hand and found anew,
	// or entered as Adopted. At most 64.
	// +optional
	// +listType=map
	// +listMapKey=machineUID
	Quarantined []QuarantinedMachine `json:"quarantined,omitempty"`
}

// QuarantinedMachine is a machine that was removed without being wiped.
type QuarantinedMachine struct {
	// machineUID of the TalosMachine that was removed.
	MachineUID types.UID `json:"machineUID"`
	// name of the TalosMachine that was removed.
	Name string `json:"name"`
	// identity of the machine.
	// +optional
	Identity MachineIdentity `json:"identity,omitempty"`
	// role that the machine had.
	// +optional
	Role MachineRole `json:"role,omitempty"`
	// nodeName is the name of its Kubernetes Node.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// etcdMemberID is the etcd member that was removed for it, in hexadecimal.
	// +optional
	EtcdMemberID string `json:"etcdMemberID,omitempty"`
	// by is the user who consented.
	// +optional
	By string `json:"by,omitempty"`
	// at is when the machine was given up.
	At metav1.Time `json:"at"`
	// reason is why it wasn't wiped, in words.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ActiveOperation is a claim on a cluster.
type ActiveOperation struct {
	// name of the TalosOperation.
	Name string `json:"name"`
	// uid of the TalosOperation.
	UID types.UID `json:"uid"`
	// since is when it claimed the cluster.
	Since metav1.Time `json:"since"`
}

// ControlPlaneCounts counts control planes.
type ControlPlaneCounts struct {
	// approved is the number of slots held.
	// +optional
	Approved int32 `json:"approved,omitempty"`
	// ready is the number of control planes whose Ready condition is True.
	// +optional
	Ready int32 `json:"ready,omitempty"`
	// limit is the number of slots there are: spec.controlPlane.count + 1.
	// +optional
	Limit int32 `json:"limit,omitempty"`
}

// ControlPlaneSlot is the place of one approved control plane.
type ControlPlaneSlot struct {
	// machineUID is the UID of the TalosMachine that holds the slot.
	MachineUID types.UID `json:"machineUID"`
	// name of the TalosMachine.
	Name string `json:"name"`
	// hostname of the control plane; no two slots have the same, because a control plane that joins etcd replaces the
	// member with its hostname.
	// +optional
	Hostname string `json:"hostname,omitempty"`
	// token changes with every claim; a slot is only released by someone who knows its current token.
	Token string `json:"token"`
	// at is when the slot was last claimed.
	At metav1.Time `json:"at"`
}

// MachineCounts counts machines by what was decided about them.
type MachineCounts struct {
	// pending machines wait for a person.
	// +optional
	Pending int32 `json:"pending,omitempty"`
	// approved machines belong to the cluster.
	// +optional
	Approved int32 `json:"approved,omitempty"`
	// rejected machines are left alone.
	// +optional
	Rejected int32 `json:"rejected,omitempty"`
	// ready machines are approved and their Ready condition is True.
	// +optional
	Ready int32 `json:"ready,omitempty"`
	// workers is the number of approved workers.
	// +optional
	Workers int32 `json:"workers,omitempty"`
	// workersReady is how many of them are Ready.
	// +optional
	WorkersReady int32 `json:"workersReady,omitempty"`
}

// EtcdMember is a member of etcd.
type EtcdMember struct {
	// id is the member's ID, in hexadecimal as etcdctl prints it.
	ID string `json:"id"`
	// hostname is the member's name in etcd.
	// +optional
	Hostname string `json:"hostname,omitempty"`
	// learner is true until the member was promoted to a voter.
	// +optional
	Learner bool `json:"learner,omitempty"`
	// machine is the TalosMachine that runs the member; empty when Ichor knows none.
	// +optional
	Machine string `json:"machine,omitempty"`
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
	// +optional
	Phase DiscoveryPhase `json:"phase,omitempty"`
	// scanRequest is the spec.discovery.scanRequest that the last finished scan answered.
	// +optional
	ScanRequest string `json:"scanRequest,omitempty"`
	// observedGeneration is the generation whose subnets and addresses the last finished scan covered.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// total is the number of addresses of the running, else of the last finished, scan.
	// +optional
	Total int32 `json:"total,omitempty"`
	// done is how many of them were classified.
	// +optional
	Done int32 `json:"done,omitempty"`
	// cursor is the address a running scan carries on from if the controller restarts.
	// +optional
	Cursor string `json:"cursor,omitempty"`
	// maintenance counts the addresses where a machine waits in maintenance mode.
	// +optional
	Maintenance int32 `json:"maintenance,omitempty"`
	// alreadyConfigured counts the addresses where a configured Talos machine answered.
	// +optional
	AlreadyConfigured int32 `json:"alreadyConfigured,omitempty"`
	// notTalos counts the addresses where something else answered.
	// +optional
	NotTalos int32 `json:"notTalos,omitempty"`
	// unreachable counts the addresses where nothing answered.
	// +optional
	Unreachable int32 `json:"unreachable,omitempty"`
	// hosts are the odd ones, sorted by address, at most 256: configured machines that aren't this cluster's, what isn't
	// Talos, addresses of spec.discovery.addresses where nothing answers, and machines that couldn't be read.
	// +optional
	// +listType=map
	// +listMapKey=address
	Hosts []DiscoveredHost `json:"hosts,omitempty"`
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
	Address string `json:"address"`
	// class is Maintenance, AlreadyConfigured, OursUnknown, Quarantined, NotTalos or Unreachable.
	Class HostClass `json:"class"`
	// message says in words what answered, for instance "an SSH server".
	// +optional
	Message string `json:"message,omitempty"`
}
