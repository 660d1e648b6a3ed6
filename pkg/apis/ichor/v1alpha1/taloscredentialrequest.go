// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosCredentialRequest asks for a short-lived client certificate of the Talos API. Creating one needs the verb
// "request" on "taloscredentialrequests/role" with the Talos role as resource name. The private key stays with whoever
// asks. The object goes an hour after the certificate has expired.
type TalosCredentialRequest struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is what is asked for. It can't be changed.
	Spec TalosCredentialRequestSpec `json:"spec"`
	// status holds the certificate, written by Ichor alone.
	// +optional
	Status TalosCredentialRequestStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosCredentialRequestList is a list of TalosCredentialRequests.
type TalosCredentialRequestList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the requests.
	Items []TalosCredentialRequest `json:"items"`
}

// TalosRole is what a holder of a Talos client certificate may do.
// Source: Talos, pkg/machinery/role/role.go.
type TalosRole string

const (
	// TalosRoleReader may read what holds no secrets.
	TalosRoleReader TalosRole = "os:reader"
	// TalosRoleOperator may also reboot, shut down and restart services.
	TalosRoleOperator TalosRole = "os:operator"
	// TalosRoleEtcdBackup may take snapshots of etcd.
	TalosRoleEtcdBackup TalosRole = "os:etcd:backup"
	// TalosRoleAdmin may do everything.
	TalosRoleAdmin TalosRole = "os:admin"
)

// TalosCredentialRequestSpec is what is asked for.
type TalosCredentialRequestSpec struct {
	// clusterRef is the cluster whose machines are to be reached.
	ClusterRef ClusterReference `json:"clusterRef"`
	// role is os:reader, os:operator, os:etcd:backup or os:admin.
	Role TalosRole `json:"role"`
	// ttl is how long the certificate is good, 1m to 24h, for os:admin to 1h. Defaults to 1h.
	// +optional
	TTL *metav1.Duration `json:"ttl,omitempty"`
	// request is a PKCS #10 certificate signing request in PEM, signed with the key that it is for: Ed25519, ECDSA of 256
	// bits or more, or RSA of 2048 bits or more. Only its public key is used.
	Request []byte `json:"request"`
	// requester is who asked. Recorded by the server.
	// +optional
	Requester CredentialRequester `json:"requester,omitempty"`
}

// CredentialRequester is the user who asked.
type CredentialRequester struct {
	// username of the user.
	// +optional
	Username string `json:"username,omitempty"`
	// uid of the user, if the authenticator knows one.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// groups of the user.
	// +optional
	// +listType=atomic
	Groups []string `json:"groups,omitempty"`
}

// TalosCredentialRequestStatus holds the certificate.
type TalosCredentialRequestStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions say how the request is: Issued, Failed.
	// The server adds Reconciling (on its way) and Stalled (waits for somebody), as kstatus reads them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// certificate is the client certificate in PEM. It is no secret.
	// +optional
	Certificate []byte `json:"certificate,omitempty"`
	// ca are the certificates in PEM of the authority that the machines' own are checked against.
	// +optional
	CA []byte `json:"ca,omitempty"`
	// endpoints are the addresses of control planes, for a talosconfig.
	// +optional
	// +listType=atomic
	Endpoints []string `json:"endpoints,omitempty"`
	// expiresAt is when the certificate ends.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}
