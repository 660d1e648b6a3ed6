// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosStorage is a place for backups: a bucket of an S3-compatible server. Ichor tries it out with a small and with a
// two-part object before it trusts it.
type TalosStorage struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is where the bucket is and how to get in.
	Spec TalosStorageSpec `json:"spec"`
	// status is what was observed, written by Ichor alone.
	// +optional
	Status TalosStorageStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosStorageList is a list of TalosStorages.
type TalosStorageList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the storages.
	Items []TalosStorage `json:"items"`
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
	Endpoint string `json:"endpoint"`
	// bucket is the name of the bucket, which must exist.
	Bucket string `json:"bucket"`
	// prefix of the keys of everything that Ichor writes, without slashes at its ends. Example: ichor/prod. Empty: none.
	// Can't be changed.
	// +optional
	Prefix string `json:"prefix,omitempty"`
	// region that requests are signed for. Defaults to us-east-1, which servers without regions take.
	// +optional
	Region string `json:"region,omitempty"`
	// addressing is Path (https://host/bucket/key) or VirtualHost (https://bucket.host/key). Defaults to Path.
	// +optional
	Addressing BucketAddressing `json:"addressing,omitempty"`
	// checksums is WhenRequired, or WhenSupported for buckets with Object Lock. Defaults to WhenRequired.
	// +optional
	Checksums ChecksumPolicy `json:"checksums,omitempty"`
	// credentialsSecretRef names the Secret in ichor-system with the keys accessKeyID and secretAccessKey.
	CredentialsSecretRef LocalSecretReference `json:"credentialsSecretRef"`
	// caBundle are the certificates in PEM that the server's certificate is checked against. Empty: those of the system.
	// It is always checked. At most 64 KiB.
	// +optional
	CABundle string `json:"caBundle,omitempty"`
	// checkRequest asks for a trial at once: whenever it is set to a text that differs from status.checkRequest, the
	// bucket is tried out. Any text of up to 64 characters.
	// +optional
	CheckRequest string `json:"checkRequest,omitempty"`
}

// LocalSecretReference names a Secret in the namespace ichor-system.
type LocalSecretReference struct {
	// name of the Secret in ichor-system.
	Name string `json:"name"`
}

// TalosStorageStatus is what was observed of a storage.
type TalosStorageStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions say how the storage is: Ready (objects were written, read back and deleted).
	// The server adds Reconciling (on its way) and Stalled (waits for somebody), as kstatus reads them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// checkRequest is the spec.checkRequest that was answered last.
	// +optional
	CheckRequest string `json:"checkRequest,omitempty"`
	// lastCheckTime is when the bucket was tried out last.
	// +optional
	LastCheckTime *metav1.Time `json:"lastCheckTime,omitempty"`
}
