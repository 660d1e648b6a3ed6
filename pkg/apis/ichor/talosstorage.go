// SPDX-License-Identifier: Apache-2.0

package ichor

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosStorage is a place for backups: a bucket of an S3-compatible server. Ichor tries it out with a small and with a
// two-part object before it trusts it.
type TalosStorage struct {
	metav1.TypeMeta
	// metadata is the standard object's metadata.
	metav1.ObjectMeta
	// spec is where the bucket is and how to get in.
	Spec TalosStorageSpec
	// status is what was observed, written by Ichor alone.
	Status TalosStorageStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosStorageList is a list of TalosStorages.
type TalosStorageList struct {
	metav1.TypeMeta
	// metadata is the standard list's metadata.
	metav1.ListMeta
	// items are the storages.
	Items []TalosStorage
}

// BucketAddressing says where a request names the bucket.
type BucketAddressing string

const (
	// BucketAddressingPath names it in the path: https://host/bucket/key.
	BucketAddressingPath BucketAddressing = "Path"
	// BucketAddressingVirtualHost names it in the host: https://bucket.host/key.
	BucketAddressingVirtualHost BucketAddressing = "VirtualHost"
)

// ChecksumPolicy says when uploads carry the newer checksum headers of S3.
type ChecksumPolicy string

const (
	// ChecksumsWhenRequired sends them only where the operation demands it; some servers refuse them otherwise.
	ChecksumsWhenRequired ChecksumPolicy = "WhenRequired"
	// ChecksumsWhenSupported sends them always, as buckets with Object Lock need it.
	ChecksumsWhenSupported ChecksumPolicy = "WhenSupported"
)

// TalosStorageSpec is where the bucket is and how to get in.
type TalosStorageSpec struct {
	// endpoint is the server's URL, with https; without path, query and credentials. Example: https://s3.example.org:9000
	Endpoint string
	// bucket is the name of the bucket, which must exist.
	Bucket string
	// prefix of the keys of everything that Ichor writes, without slashes at its ends. Example: ichor/prod. Empty: none.
	// Can't be changed.
	Prefix string
	// region that requests are signed for. Defaults to us-east-1, which servers without regions take.
	Region string
	// addressing is Path (https://host/bucket/key) or VirtualHost (https://bucket.host/key). Defaults to Path.
	Addressing BucketAddressing
	// checksums is WhenRequired, or WhenSupported for buckets with Object Lock. Defaults to WhenRequired.
	Checksums ChecksumPolicy
	// credentialsSecretRef names the Secret in ichor-system with the keys accessKeyID and secretAccessKey.
	CredentialsSecretRef LocalSecretReference
	// caBundle are the certificates in PEM that the server's certificate is checked against. Empty: those of the system.
	// It is always checked. At most 64 KiB.
	CABundle string
	// checkRequest asks for a trial at once: whenever it is set to a text that differs from status.checkRequest, the
	// bucket is tried out. Any text of up to 64 characters.
	CheckRequest string
}

// LocalSecretReference names a Secret in the namespace ichor-system.
type LocalSecretReference struct {
	// name of the Secret in ichor-system.
	Name string
}

// TalosStorageStatus is what was observed of a storage.
type TalosStorageStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	ObservedGeneration int64
	// conditions say how the storage is: Ready (objects were written, read back and deleted).
	Conditions []metav1.Condition
	// checkRequest is the spec.checkRequest that was answered last.
	CheckRequest string
	// lastCheckTime is when the bucket was tried out last.
	LastCheckTime *metav1.Time
}
