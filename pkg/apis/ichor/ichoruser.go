// SPDX-License-Identifier: Apache-2.0

package ichor

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// IchorUser is a person who signs in to the web page, or with a client certificate. Towards Kubernetes it is the user
// ichor:<name> in the group ichor:<role>, which RBAC decides about. Its password is set through the subresource
// "password" and can't be read by anyone.
type IchorUser struct {
	metav1.TypeMeta
	// metadata is the standard object's metadata. The name is what the person types.
	metav1.ObjectMeta
	// spec is what the person may do.
	Spec IchorUserSpec
	// status is what was observed, written by Ichor alone.
	Status IchorUserStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// IchorUserList is a list of IchorUsers.
type IchorUserList struct {
	metav1.TypeMeta
	// metadata is the standard list's metadata.
	metav1.ListMeta
	// items are the users.
	Items []IchorUser
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
	Role IchorUserRole
	// displayName is what the web page calls the person, up to 128 characters. Empty: the name of the object.
	DisplayName string
	// disabled keeps the person out, with password and certificate. Defaults to false.
	Disabled bool
	// certificateRequest asks for a client certificate of Kubernetes for the person. Only the subresource "certificate"
	// changes it.
	CertificateRequest *UserCertificateRequest
}

// UserCertificateRequest asks for a client certificate.
type UserCertificateRequest struct {
	// request is a PKCS #10 certificate signing request in PEM, signed with the key that it is for. Only its public key
	// is used; name and group are the person's.
	Request []byte
	// ttl is how long the certificate is good, 10m to 720h. Kubernetes' signer may make it shorter. Defaults to 24h.
	TTL *metav1.Duration
	// by is the user who asked. Recorded by the server.
	By string
	// at is when that was. Recorded by the server.
	At *metav1.Time
}

// IchorUserStatus is what was observed of a person.
type IchorUserStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	ObservedGeneration int64
	// conditions say how the user is: Ready, PasswordSet, CertificateIssued.
	Conditions []metav1.Condition
	// passwordChangedAt is when the password was set last; absent if there is none. Written by the server.
	PasswordChangedAt *metav1.Time
	// lastLoginTime is when the person signed in last, to the hour.
	LastLoginTime *metav1.Time
	// certificate is the client certificate in PEM. It is no secret.
	Certificate []byte
	// certificateExpiresAt is when it ends.
	CertificateExpiresAt *metav1.Time
}
