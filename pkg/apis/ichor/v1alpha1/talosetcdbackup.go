// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosEtcdBackup takes snapshots of a cluster's etcd, by a schedule or when asked, encrypts them and keeps them in a
// TalosStorage. A backup counts once it was read back and its hashes were checked.
type TalosEtcdBackup struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is what is backed up, when, and for how long it is kept.
	Spec TalosEtcdBackupSpec `json:"spec"`
	// status is what was done, written by Ichor alone.
	// +optional
	Status TalosEtcdBackupStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosEtcdBackupList is a list of TalosEtcdBackups.
type TalosEtcdBackupList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the backups.
	Items []TalosEtcdBackup `json:"items"`
}

// TalosEtcdBackupSpec is what is backed up, when, and for how long it is kept.
type TalosEtcdBackupSpec struct {
	// clusterRef is the cluster whose etcd is backed up. Can't be changed.
	ClusterRef ClusterReference `json:"clusterRef"`
	// storageRef is the TalosStorage that the backups go to. Can't be changed.
	StorageRef StorageReference `json:"storageRef"`
	// schedule is when a backup is taken, as five cron fields: minute, hour, day of the month, month, day of the week.
	// Empty: only when asked by backupRequest. Example, every six hours: 0 */6 * * *
	// +optional
	Schedule string `json:"schedule,omitempty"`
	// timeZone is the name of the time zone of schedule in the IANA database, for instance Europe/Berlin. Defaults to UTC.
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
	// suspend stops the schedule; backups that are asked for are taken. Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// backupRequest asks for a backup at once: whenever it is set to a text that differs from status.backupRequest, one
	// is taken. Any text of up to 64 characters.
	// +optional
	BackupRequest string `json:"backupRequest,omitempty"`
	// retention is how many backups are kept. The last verified one is never deleted.
	// +optional
	Retention BackupRetention `json:"retention,omitempty"`
	// encryption is how backups are encrypted before they leave the controller. A backup holds every Secret of the
	// cluster, so there are none in plain.
	Encryption BackupEncryption `json:"encryption"`
}

// StorageReference names a TalosStorage.
type StorageReference struct {
	// name of the TalosStorage.
	Name string `json:"name"`
}

// BackupRetention is how many backups are kept.
type BackupRetention struct {
	// count is how many of the newest backups are kept, 1 to 1,000. Defaults to 28.
	// +optional
	Count int32 `json:"count,omitempty"`
	// maxAge is how old a kept backup may be, at least 1h. Absent: any age.
	// +optional
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
}

// BackupEncryption is how backups are encrypted. Exactly one member is given.
type BackupEncryption struct {
	// age encrypts to public keys, see https://age-encryption.org.
	// +optional
	Age *AgeEncryption `json:"age,omitempty"`
}

// AgeEncryption encrypts to public keys; whoever holds one of the private keys can restore.
type AgeEncryption struct {
	// recipients are age public keys, for instance age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p. One to
	// sixteen.
	// +listType=set
	Recipients []string `json:"recipients"`
}

// TalosEtcdBackupStatus is what was done.
type TalosEtcdBackupStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions say how the backups are: Ready (the last one that was due is verified), Progressing.
	// The server adds Reconciling (on its way) and Stalled (waits for somebody), as kstatus reads them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// backupRequest is the spec.backupRequest that was answered last.
	// +optional
	BackupRequest string `json:"backupRequest,omitempty"`
	// nextScheduleTime is when the next backup is due; absent without schedule.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`
	// lastVerifiedTime is when the newest verified backup was taken.
	// +optional
	LastVerifiedTime *metav1.Time `json:"lastVerifiedTime,omitempty"`
	// count is how many backups there are in the storage.
	// +optional
	Count int32 `json:"count,omitempty"`
	// backups are the newest ones, newest first, at most 32.
	// +optional
	// +listType=map
	// +listMapKey=key
	Backups []EtcdBackupRecord `json:"backups,omitempty"`
}

// EtcdBackupRecord is one backup in the storage.
type EtcdBackupRecord struct {
	// key of the object in the storage.
	Key string `json:"key"`
	// at is when the snapshot was taken.
	At metav1.Time `json:"at"`
	// size of the snapshot before it was encrypted.
	// +optional
	Size resource.Quantity `json:"size,omitempty"`
	// revision of etcd that the snapshot holds.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// digest of the snapshot before it was encrypted: sha256:, and the SHA-256 in hexadecimal.
	// +optional
	Digest string `json:"digest,omitempty"`
	// verified says that it was read back, decrypted and found whole.
	// +optional
	Verified bool `json:"verified,omitempty"`
	// machine is the TalosMachine whose etcd member gave the snapshot.
	// +optional
	Machine string `json:"machine,omitempty"`
}
