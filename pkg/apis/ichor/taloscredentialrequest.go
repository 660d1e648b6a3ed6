// SPDX-License-Identifier: Apache-2.0

package ichor

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosCredentialRequest asks for a short-lived client certificate of the Talos API. Creating one needs the verb
// "request" on "taloscredentialrequests/role" with the Talos role as resource name. The private key stays with whoever
// asks. The object goes an hour after the certificate has expired.
type TalosCredentialRequest struct {
	metav1.TypeMeta
	// metadata is the standard object's metadata.
	metav1.ObjectMeta
	// spec is what is asked for. It can't be changed.
	Spec TalosCredentialRequestSpec
	// status holds the certificate, written by Ichor alone.
	Status TalosCredentialRequestStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosCredentialRequestList is a list of TalosCredentialRequests.
type TalosCredentialRequestList struct {
	metav1.TypeMeta
	// metadata is the standard list's metadata.
	metav1.ListMeta
	// items are the requests.
	Items []TalosCredentialRequest
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
	ClusterRef ClusterReference
	// role is os:reader, os:operator, os:etcd:backup or os:admin.
	Role TalosRole
	// ttl is how long the certificate is good, 1m to 24h, for os:admin to 1h. Defaults to 1h.
	TTL *metav1.Duration
	// request is a PKCS #10 certificate signing request in PEM, signed with the key that it is for: Ed25519, ECDSA of 256
	// bits or more, or RSA of 2048 bits or more. Only its public key is used.
	Request []byte
	// requester is who asked. Recorded by the server.
	Requester CredentialRequester
}

// CredentialRequester is the user who asked.
type CredentialRequester struct {
	// username of the user.
	Username string
	// uid of the user, if the authenticator knows one.
	UID types.UID
	// groups of the user.
	Groups []string
}

// TalosCredentialRequestStatus holds the certificate.
type TalosCredentialRequestStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	ObservedGeneration int64
	// conditions say how the request is: Issued, Failed.
	Conditions []metav1.Condition
	// certificate is the client certificate in PEM. It is no secret.
	Certificate []byte
	// ca are the certificates in PEM of the authority that the machines' own are checked against.
	CA []byte
	// endpoints are the addresses of control planes, for a talosconfig.
	Endpoints []string
	// expiresAt is when the certificate ends.
	ExpiresAt *metav1.Time
}
