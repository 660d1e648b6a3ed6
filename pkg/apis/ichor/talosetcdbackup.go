// SPDX-License-Identifier: Apache-2.0

package ichor

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosEtcdBackup takes snapshots of a cluster's etcd, by a schedule or when asked, encrypts them and keeps them in a
// TalosStorage. A backup counts once it was read back and its hashes were checked.
type TalosEtcdBackup struct {
	metav1.TypeMeta
	// metadata is the standard object's metadata.
	metav1.ObjectMeta
	// spec is what is backed up, when, and for how long it is kept.
	Spec TalosEtcdBackupSpec
	// status is what was done, written by Ichor alone.
	Status TalosEtcdBackupStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosEtcdBackupList is a list of TalosEtcdBackups.
type TalosEtcdBackupList struct {
	metav1.TypeMeta
	// metadata is the standard list's metadata.
	metav1.ListMeta
	// items are the backups.
	Items []TalosEtcdBackup
}

// TalosEtcdBackupSpec is what is backed up, when, and for how long it is kept.
type TalosEtcdBackupSpec struct {
	// clusterRef is the cluster whose etcd is backed up. Can't be changed.
	ClusterRef ClusterReference
	// storageRef is the TalosStorage that the backups go to. Can't be changed.
	StorageRef StorageReference
	// schedule is when a backup is taken, as five cron fields: minute, hour, day of the month, month, day of the week.
	// Empty: only when asked by backupRequest. Example, every six hours: 0 */6 * * *
	Schedule string
	// timeZone is the name of the time zone of schedule in the IANA database, for instance Europe/Berlin. Defaults to UTC.
	TimeZone string
	// suspend stops the schedule; backups that are asked for are taken. Defaults to false.
	Suspend bool
	// backupRequest asks for a backup at once: whenever it is set to a text that differs from status.backupRequest, one
	// is taken. Any text of up to 64 characters.
	BackupRequest string
	// retention is how many backups are kept. The last verified one is never deleted.
	Retention BackupRetention
	// encryption is how backups are encrypted before they leave the controller. A backup holds every Secret of the
	// cluster, so there are none in plain.
	Encryption BackupEncryption
}

// StorageReference names a TalosStorage.
type StorageReference struct {
	// name of the TalosStorage.
	Name string
}

// BackupRetention is how many backups are kept.
type BackupRetention struct {
	// count is how many of the newest backups are kept, 1 to 1,000. Defaults to 28.
	Count int32
	// maxAge is how old a kept backup may be, at least 1h. Absent: any age.
	MaxAge *metav1.Duration
}

// BackupEncryption is how backups are encrypted. Exactly one member is given.
type BackupEncryption struct {
	// age encrypts to public keys, see https://age-encryption.org.
	Age *AgeEncryption
}

// AgeEncryption encrypts to public keys; whoever holds one of the private keys can restore.
type AgeEncryption struct {
	// recipients are age public keys, for instance age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p. One to
	// sixteen.
	Recipients []string
}

// TalosEtcdBackupStatus is what was done.
type TalosEtcdBackupStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	ObservedGeneration int64
	// conditions say how the backups are: Ready (the last one that was due is verified), Progressing.
	Conditions []metav1.Condition
	// backupRequest is the spec.backupRequest that was answered last.
	BackupRequest string
	// nextScheduleTime is when the next backup is due; absent without schedule.
	NextScheduleTime *metav1.Time
	// lastVerifiedTime is when the newest verified backup was taken.
	LastVerifiedTime *metav1.Time
	// count is how many backups there are in the storage.
	Count int32
	// backups are the newest ones, newest first, at most 32.
	Backups []EtcdBackupRecord
}

// EtcdBackupRecord is one backup in the storage.
type EtcdBackupRecord struct {
	// key of the object in the storage.
	Key string
	// at is when the snapshot was taken.
	At metav1.Time
	// size of the snapshot before it was encrypted.
	Size resource.Quantity
	// revision of etcd that the snapshot holds.
	Revision int64
	// digest of the snapshot before it was encrypted: sha256:, and the SHA-256 in hexadecimal.
	Digest string
	// verified says that it was read back, decrypted and found whole.
	Verified bool
	// machine is the TalosMachine whose etcd member gave the snapshot.
	Machine string
}
