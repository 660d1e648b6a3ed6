// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:method=Resume,verb=update,subresource=resume,input=maesh.dev/ichor/pkg/apis/ichor/v1alpha1.TalosOperation,result=maesh.dev/ichor/pkg/apis/ichor/v1alpha1.TalosOperation
// +genclient:method=Cancel,verb=update,subresource=cancel,input=maesh.dev/ichor/pkg/apis/ichor/v1alpha1.TalosOperation,result=maesh.dev/ichor/pkg/apis/ichor/v1alpha1.TalosOperation
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosOperation is one piece of work on the machines of a cluster that takes a while and can go wrong: an upgrade, a
// reboot, the rotation of a key. It is planned, then done one machine at a time, and stops where something isn't as it
// should be. At most one operation runs in a cluster; others wait in the order of their creation.
type TalosOperation struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is what is to be done. It can't be changed, but for suspend.
	Spec TalosOperationSpec `json:"spec"`
	// status is the plan and how far it got, written by Ichor alone.
	// +optional
	Status TalosOperationStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosOperationList is a list of TalosOperations.
type TalosOperationList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the operations.
	Items []TalosOperation `json:"items"`
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
	ClusterRef ClusterReference `json:"clusterRef"`
	// talosUpgrade installs another version of Talos.
	// +optional
	TalosUpgrade *TalosUpgrade `json:"talosUpgrade,omitempty"`
	// kubernetesUpgrade moves the control plane's components and the kubelets to another version of Kubernetes.
	// +optional
	KubernetesUpgrade *KubernetesUpgrade `json:"kubernetesUpgrade,omitempty"`
	// ciliumUpgrade moves Cilium to another version of its chart.
	// +optional
	CiliumUpgrade *CiliumUpgrade `json:"ciliumUpgrade,omitempty"`
	// ichorUpgrade moves Ichor itself to another version.
	// +optional
	IchorUpgrade *IchorUpgrade `json:"ichorUpgrade,omitempty"`
	// configRollout reboots the machines whose configuration waits for it. Example: {}
	// +optional
	ConfigRollout *ConfigRollout `json:"configRollout,omitempty"`
	// reboot reboots machines. Example: {}
	// +optional
	Reboot *Reboot `json:"reboot,omitempty"`
	// shutdown powers machines off: workers first, then control planes.
	// +optional
	Shutdown *Shutdown `json:"shutdown,omitempty"`
	// etcdRestore puts the cluster's etcd back to a backup.
	// +optional
	EtcdRestore *EtcdRestore `json:"etcdRestore,omitempty"`
	// rotateCA replaces a certificate authority, in phases in which both are trusted.
	// +optional
	RotateCA *RotateCA `json:"rotateCA,omitempty"`
	// rotateKey replaces a key.
	// +optional
	RotateKey *RotateKey `json:"rotateKey,omitempty"`
	// machines are the machines that it is about. Absent: all of the cluster. Refused for kinds that are about the
	// cluster as a whole: ciliumUpgrade, ichorUpgrade, etcdRestore, rotateCA and rotateKey.
	// +optional
	Machines *OperationMachines `json:"machines,omitempty"`
	// mode is Run, or Plan: the plan is written into the status and nothing is changed. Defaults to Run.
	// +optional
	Mode OperationMode `json:"mode,omitempty"`
	// gates must be open before each machine, besides those that Ichor has of its own (etcd and the previous machine are
	// healthy, a snapshot of etcd is fresh). At most 16.
	// +optional
	// +listType=map
	// +listMapKey=name
	Gates []OperationGate `json:"gates,omitempty"`
	// windows are the times at which a machine may be begun; what was begun is finished after one ends, too. Empty: any
	// time. At most 16.
	// +optional
	// +listType=atomic
	Windows []OperationWindow `json:"windows,omitempty"`
	// drain says how pods are moved away from a machine before it goes down.
	// +optional
	Drain Drain `json:"drain,omitempty"`
	// suspend lets no further machine begin while it is true; the one that was begun is finished. The only field that
	// can be changed. Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// control holds what the subresources "resume" and "cancel" asked for. Only they change it.
	// +optional
	Control *OperationControl `json:"control,omitempty"`
}

// OperationMachines chooses the machines of an operation: those that fit everything that is given.
type OperationMachines struct {
	// names are names of TalosMachines. At most 1,000.
	// +optional
	// +listType=set
	Names []string `json:"names,omitempty"`
	// selector chooses TalosMachines by their labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// TalosUpgrade installs another version of Talos.
type TalosUpgrade struct {
	// version of Talos, for instance v1.14.6. Empty: the cluster's spec.talosVersion when the operation is planned.
	// +optional
	Version string `json:"version,omitempty"`
	// schematicID is the Image Factory schematic to install, 64 hexadecimal digits. Empty: each machine keeps its own.
	// +optional
	SchematicID string `json:"schematicID,omitempty"`
}

// KubernetesUpgrade moves Kubernetes to another version.
type KubernetesUpgrade struct {
	// version of Kubernetes, for instance v1.36.7. Empty: the cluster's spec.kubernetesVersion when the operation is
	// planned.
	// +optional
	Version string `json:"version,omitempty"`
}

// CiliumUpgrade moves Cilium to another version.
type CiliumUpgrade struct {
	// version of the chart, for instance 1.20.5. Empty: the cluster's spec.cni.cilium.version when the operation is
	// planned.
	// +optional
	Version string `json:"version,omitempty"`
}

// IchorUpgrade moves Ichor to another version.
type IchorUpgrade struct {
	// version of Ichor, for instance v0.2.0. Empty: the IchorInstallation's spec.version when the operation is planned.
	// +optional
	Version string `json:"version,omitempty"`
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
	// +optional
	Mode RebootMode `json:"mode,omitempty"`
}

// Shutdown powers machines off.
type Shutdown struct {
	// consent is the name of the cluster, typed once more, where no machines are named: the whole cluster goes down.
	// +optional
	Consent string `json:"consent,omitempty"`
}

// EtcdRestore puts etcd back to a backup. Everything written after the backup is lost.
type EtcdRestore struct {
	// backup is where the snapshot comes from.
	Backup BackupReference `json:"backup"`
	// consent is the name of the cluster, typed once more: everything that was written after the backup is lost.
	Consent string `json:"consent"`
}

// BackupReference names one backup of a TalosEtcdBackup.
type BackupReference struct {
	// name of the TalosEtcdBackup.
	Name string `json:"name"`
	// key of one of its backups in the storage, as in status.backups. Empty: the last verified one.
	// +optional
	Key string `json:"key,omitempty"`
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
	Authority CertificateAuthority `json:"authority"`
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
	Key ClusterKey `json:"key"`
}

// OperationGate must be open before each machine. Exactly one of cel and job is given.
type OperationGate struct {
	// name of the gate, unique in the operation: a DNS label.
	Name string `json:"name"`
	// cel is open when an expression over a Kubernetes object is true.
	// +optional
	CEL *CELGate `json:"cel,omitempty"`
	// job is open when a Job has succeeded.
	// +optional
	Job *JobGate `json:"job,omitempty"`
	// timeout is how long to wait for the gate before each machine; then the operation is Paused. At least 1s. Defaults
	// to 30m.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// CELGate looks at a Kubernetes object.
type CELGate struct {
	// apiVersion of the object, for instance ceph.rook.io/v1.
	APIVersion string `json:"apiVersion"`
	// kind of the object, for instance CephCluster.
	Kind string `json:"kind"`
	// namespace of the object; empty for one that has none.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name of the object.
	Name string `json:"name"`
	// expression in the Common Expression Language; the object is the variable "object", and the result is a boolean.
	// Example: object.status.ceph.health == 'HEALTH_OK'
	Expression string `json:"expression"`
}

// JobGate runs a Job before each machine.
type JobGate struct {
	// namespace of the CronJob and of the Jobs.
	Namespace string `json:"namespace"`
	// cronJob is the name of the CronJob, usually a suspended one, from whose template a Job is made before each machine.
	CronJob string `json:"cronJob"`
}

// OperationWindow is a time at which machines may be begun.
type OperationWindow struct {
	// schedule is when the window opens, as five cron fields: minute, hour, day of the month, month, day of the week.
	// Example, Saturdays at two: 0 2 * * 6
	Schedule string `json:"schedule"`
	// duration is how long it stays open, 1m to 168h. Example: 4h
	Duration metav1.Duration `json:"duration"`
	// timeZone is the name of the time zone of schedule in the IANA database, for instance Europe/Berlin. Defaults to UTC.
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// Drain says how pods are moved away from a machine.
type Drain struct {
	// timeout is how long to wait until all pods are gone; then the operation is Paused. At least 1s. Defaults to 10m.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// skipWaitForDeleteTimeout leaves out pods that have been terminating for longer than this, as their node may be
	// gone. 0s waits for all. Defaults to 0s.
	// +optional
	SkipWaitForDeleteTimeout *metav1.Duration `json:"skipWaitForDeleteTimeout,omitempty"`
	// disableEviction deletes pods instead of evicting them, past their PodDisruptionBudgets. Defaults to false.
	// +optional
	DisableEviction bool `json:"disableEviction,omitempty"`
}

// OperationControl is what people asked of a running operation.
type OperationControl struct {
	// resumeRequests counts how often the operation was resumed; each lets it try its failed step once more.
	// +optional
	ResumeRequests int64 `json:"resumeRequests,omitempty"`
	// cancelRequested ends the operation: what was begun is put back where that is safe. It can't be taken back.
	// +optional
	CancelRequested bool `json:"cancelRequested,omitempty"`
	// by is the user who asked last. Recorded by the server.
	// +optional
	By string `json:"by,omitempty"`
	// at is when that was. Recorded by the server.
	// +optional
	At *metav1.Time `json:"at,omitempty"`
}
