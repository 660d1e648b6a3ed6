// SPDX-License-Identifier: Apache-2.0

package ichor

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosOperation is one piece of work on the machines of a cluster that takes a while and can go wrong: an upgrade, a
// reboot, the rotation of a key. It is planned, then done one machine at a time, and stops where something isn't as it
// should be. At most one operation runs in a cluster; others wait in the order of their creation.
type TalosOperation struct {
	metav1.TypeMeta
	// metadata is the standard object's metadata.
	metav1.ObjectMeta
	// spec is what is to be done. It can't be changed, but for suspend.
	Spec TalosOperationSpec
	// status is the plan and how far it got, written by Ichor alone.
	Status TalosOperationStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosOperationList is a list of TalosOperations.
type TalosOperationList struct {
	metav1.TypeMeta
	// metadata is the standard list's metadata.
	metav1.ListMeta
	// items are the operations.
	Items []TalosOperation
}

// OperationMode says whether an operation is carried out.
type OperationMode string

const (
	// OperationModeRun plans and carries out.
	OperationModeRun OperationMode = "Run"
	// OperationModePlan writes the plan into the status and changes nothing.
	OperationModePlan OperationMode = "Plan"
)

// TalosOperationSpec is what is to be done. Exactly one of talosUpgrade, kubernetesUpgrade, ciliumUpgrade, ichorUpgrade,
// configRollout, reboot, shutdown, etcdRestore, rotateCA and rotateKey is given.
type TalosOperationSpec struct {
	// clusterRef is the cluster.
	ClusterRef ClusterReference
	// talosUpgrade installs another version of Talos.
	TalosUpgrade *TalosUpgrade
	// kubernetesUpgrade moves the control plane's components and the kubelets to another version of Kubernetes.
	KubernetesUpgrade *KubernetesUpgrade
	// ciliumUpgrade moves Cilium to another version of its chart.
	CiliumUpgrade *CiliumUpgrade
	// ichorUpgrade moves Ichor itself to another version.
	IchorUpgrade *IchorUpgrade
	// configRollout reboots the machines whose configuration waits for it. Example: {}
	ConfigRollout *ConfigRollout
	// reboot reboots machines. Example: {}
	Reboot *Reboot
	// shutdown powers machines off: workers first, then control planes.
	Shutdown *Shutdown
	// etcdRestore puts the cluster's etcd back to a backup.
	EtcdRestore *EtcdRestore
	// rotateCA replaces a certificate authority, in phases in which both are trusted.
	RotateCA *RotateCA
	// rotateKey replaces a key.
	RotateKey *RotateKey
	// machines are the machines that it is about. Absent: all of the cluster. Refused for kinds that are about the
	// cluster as a whole: ciliumUpgrade, ichorUpgrade, etcdRestore, rotateCA and rotateKey.
	Machines *OperationMachines
	// mode is Run, or Plan: the plan is written into the status and nothing is changed. Defaults to Run.
	Mode OperationMode
	// gates must be open before each machine, besides those that Ichor has of its own (etcd and the previous machine are
	// healthy, a snapshot of etcd is fresh). At most 16.
	Gates []OperationGate
	// windows are the times at which a machine may be begun; what was begun is finished after one ends, too. Empty: any
	// time. At most 16.
	Windows []OperationWindow
	// drain says how pods are moved away from a machine before it goes down.
	Drain Drain
	// suspend lets no further machine begin while it is true; the one that was begun is finished. The only field that
	// can be changed. Defaults to false.
	Suspend bool
	// control holds what the subresources "resume" and "cancel" asked for. Only they change it.
	Control *OperationControl
}

// OperationMachines chooses the machines of an operation: those that fit everything that is given.
type OperationMachines struct {
	// names are names of TalosMachines. At most 1,000.
	Names []string
	// selector chooses TalosMachines by their labels.
	Selector *metav1.LabelSelector
}

// TalosUpgrade installs another version of Talos.
type TalosUpgrade struct {
	// version of Talos, for instance v1.14.6. Empty: the cluster's spec.talosVersion when the operation is planned.
	Version string
	// schematicID is the Image Factory schematic to install, 64 hexadecimal digits. Empty: each machine keeps its own.
	SchematicID string
}

// KubernetesUpgrade moves Kubernetes to another version.
type KubernetesUpgrade struct {
	// version of Kubernetes, for instance v1.36.7. Empty: the cluster's spec.kubernetesVersion when the operation is
	// planned.
	Version string
}

// CiliumUpgrade moves Cilium to another version.
type CiliumUpgrade struct {
	// version of the chart, for instance 1.20.5. Empty: the cluster's spec.cni.cilium.version when the operation is
	// planned.
	Version string
}

// IchorUpgrade moves Ichor to another version.
type IchorUpgrade struct {
	// version of Ichor, for instance v0.2.0. Empty: the IchorInstallation's spec.version when the operation is planned.
	Version string
}

// ConfigRollout reboots the machines whose configuration waits for a reboot.
type ConfigRollout struct{}

// RebootMode says how a machine reboots.
type RebootMode string

const (
	// RebootDefault stops everything in order and boots the kernel anew.
	RebootDefault RebootMode = "Default"
	// RebootPowerCycle goes through the firmware, where Talos would use kexec.
	RebootPowerCycle RebootMode = "PowerCycle"
)

// Reboot reboots machines.
type Reboot struct {
	// mode is Default, or PowerCycle: through the firmware, without kexec. Defaults to Default.
	Mode RebootMode
}

// Shutdown powers machines off.
type Shutdown struct {
	// consent is the name of the cluster, typed once more, where no machines are named: the whole cluster goes down.
	Consent string
}

// EtcdRestore puts etcd back to a backup. Everything written after the backup is lost.
type EtcdRestore struct {
	// backup is where the snapshot comes from.
	Backup BackupReference
	// consent is the name of the cluster, typed once more: everything that was written after the backup is lost.
	Consent string
}

// BackupReference names one backup of a TalosEtcdBackup.
type BackupReference struct {
	// name of the TalosEtcdBackup.
	Name string
	// key of one of its backups in the storage, as in status.backups. Empty: the last verified one.
	Key string
}

// CertificateAuthority is one of a cluster's certificate authorities.
type CertificateAuthority string

const (
	// CertificateAuthorityTalos signs the certificates of the Talos API.
	CertificateAuthorityTalos CertificateAuthority = "Talos"
	// CertificateAuthorityKubernetes signs the certificates of the Kubernetes API and its clients.
	CertificateAuthorityKubernetes CertificateAuthority = "Kubernetes"
	// CertificateAuthorityEtcd signs the certificates of etcd.
	CertificateAuthorityEtcd CertificateAuthority = "Etcd"
	// CertificateAuthorityAggregator signs the front proxy's certificate.
	CertificateAuthorityAggregator CertificateAuthority = "Aggregator"
)

// RotateCA replaces a certificate authority.
type RotateCA struct {
	// authority is Talos, Kubernetes, Etcd or Aggregator.
	Authority CertificateAuthority
}

// ClusterKey is one of a cluster's keys.
type ClusterKey string

const (
	// ClusterKeyServiceAccount signs the tokens of service accounts.
	ClusterKeyServiceAccount ClusterKey = "ServiceAccount"
	// ClusterKeySecretbox encrypts Secrets in etcd.
	ClusterKeySecretbox ClusterKey = "Secretbox"
)

// RotateKey replaces a key.
type RotateKey struct {
	// key is ServiceAccount or Secretbox.
	Key ClusterKey
}

// OperationGate must be open before each machine. Exactly one of cel and job is given.
type OperationGate struct {
	// name of the gate, unique in the operation: a DNS label.
	Name string
	// cel is open when an expression over a Kubernetes object is true.
	CEL *CELGate
	// job is open when a Job has succeeded.
	Job *JobGate
	// timeout is how long to wait for the gate before each machine; then the operation is Paused. At least 1s. Defaults
	// to 30m.
	Timeout *metav1.Duration
}

// CELGate looks at a Kubernetes object.
type CELGate struct {
	// apiVersion of the object, for instance ceph.rook.io/v1.
	APIVersion string
	// kind of the object, for instance CephCluster.
	Kind string
	// namespace of the object; empty for one that has none.
	Namespace string
	// name of the object.
	Name string
	// expression in the Common Expression Language; the object is the variable "object", and the result is a boolean.
	// Example: object.status.ceph.health == 'HEALTH_OK'
	Expression string
}

// JobGate runs a Job before each machine.
type JobGate struct {
	// namespace of the CronJob and of the Jobs.
	Namespace string
	// cronJob is the name of the CronJob, usually a suspended one, from whose template a Job is made before each machine.
	CronJob string
}

// OperationWindow is a time at which machines may be begun.
type OperationWindow struct {
	// schedule is when the window opens, as five cron fields: minute, hour, day of the month, month, day of the week.
	// Example, Saturdays at two: 0 2 * * 6
	Schedule string
	// duration is how long it stays open, 1m to 168h. Example: 4h
	Duration metav1.Duration
	// timeZone is the name of the time zone of schedule in the IANA database, for instance Europe/Berlin. Defaults to UTC.
	TimeZone string
}

// Drain says how pods are moved away from a machine.
type Drain struct {
	// timeout is how long to wait until all pods are gone; then the operation is Paused. At least 1s. Defaults to 10m.
	Timeout *metav1.Duration
	// skipWaitForDeleteTimeout leaves out pods that have been terminating for longer than this, as their node may be
	// gone. 0s waits for all. Defaults to 0s.
	SkipWaitForDeleteTimeout *metav1.Duration
	// disableEviction deletes pods instead of evicting them, past their PodDisruptionBudgets. Defaults to false.
	DisableEviction bool
}

// OperationControl is what people asked of a running operation.
type OperationControl struct {
	// resumeRequests counts how often the operation was resumed; each lets it try its failed step once more.
	ResumeRequests int64
	// cancelRequested ends the operation: what was begun is put back where that is safe. It can't be taken back.
	CancelRequested bool
	// by is the user who asked last. Recorded by the server.
	By string
	// at is when that was. Recorded by the server.
	At *metav1.Time
}
