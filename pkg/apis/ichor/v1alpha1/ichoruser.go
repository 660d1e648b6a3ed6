// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:method=UpdateCertificate,verb=update,subresource=certificate,input=maesh.dev/ichor/pkg/apis/ichor/v1alpha1.IchorUser,result=maesh.dev/ichor/pkg/apis/ichor/v1alpha1.IchorUser
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// IchorUser is a person who signs in to the web page, or with a client certificate. Towards Kubernetes it is the user
// ichor:<name> in the group ichor:<role>, which RBAC decides about. Its password is set through the subresource
// "password" and can't be read by anyone.
type IchorUser struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata. The name is what the person types.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is what the person may do.
	Spec IchorUserSpec `json:"spec"`
	// status is what was observed, written by Ichor alone.
	// +optional
	Status IchorUserStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// IchorUserList is a list of IchorUsers.
type IchorUserList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the users.
	Items []IchorUser `json:"items"`
}

// IchorUserRole is what a person may do; the ClusterRole of the same name says what that is.
type IchorUserRole string

const (
	// IchorUserViewer sees everything but secrets: group ichor:viewer, ClusterRole ichor-viewer.
	IchorUserViewer IchorUserRole = "Viewer"
	// IchorUserOperator also approves machines and runs operations: group ichor:operator, ClusterRole ichor-operator.
	IchorUserOperator IchorUserRole = "Operator"
	// IchorUserAdmin may do everything in Ichor: group ichor:admin, ClusterRole ichor-admin.
	IchorUserAdmin IchorUserRole = "Admin"
)

// IchorUserSpec is what a person may do.
type IchorUserSpec struct {
	// role is Viewer, Operator or Admin.
	Role IchorUserRole `json:"role"`
	// displayName is what the web page calls the person, up to 128 characters. Empty: the name of the object.
	// +optional
	DisplayName string `json:"displayName,omitempty"`
	// disabled keeps the person out, with password and certificate. Defaults to false.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
	// certificateRequest asks for a client certificate of Kubernetes for the person. Only the subresource "certificate"
	// changes it.
	// +optional
	CertificateRequest *UserCertificateRequest `json:"certificateRequest,omitempty"`
}

// UserCertificateRequest asks for a client certificate.
type UserCertificateRequest struct {
	// request is a PKCS #10 certificate signing request in PEM, signed with the key that it is for. Only its public key
	// is used; name and group are the person's.
	Request []byte `json:"request"`
	// ttl is how long the certificate is good, 10m to 720h. Kubernetes' signer may make it shorter. Defaults to 24h.
	// +optional
	TTL *metav1.Duration `json:"ttl,omitempty"`
	// by is the user who asked. Recorded by the server.
	// +optional
	By string `json:"by,omitempty"`
	// at is when that was. Recorded by the server.
	// +optional
	At *metav1.Time `json:"at,omitempty"`
}

// IchorUserStatus is what was observed of a person.
type IchorUserStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions say how the user is: Ready, PasswordSet, CertificateIssued.
	// The server adds Reconciling (on its way) and Stalled (waits for somebody), as kstatus reads them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// passwordChangedAt is when the password was set last; absent if there is none. Written by the server.
	// +optional
	PasswordChangedAt *metav1.Time `json:"passwordChangedAt,omitempty"`
	// lastLoginTime is when the person signed in last, to the hour.
	// +optional
	LastLoginTime *metav1.Time `json:"lastLoginTime,omitempty"`
	// certificate is the client certificate in PEM. It is no secret.
	// +optional
	Certificate []byte `json:"certificate,omitempty"`
	// certificateExpiresAt is when it ends.
	// +optional
	CertificateExpiresAt *metav1.Time `json:"certificateExpiresAt,omitempty"`
}
