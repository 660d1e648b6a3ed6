// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:openapi-gen=false

// UserPassword is how the server stores the password of an IchorUser: a hash, under a key of its own, named by the
// user's UID. No endpoint serves it; it is in this package because it is stored like everything else.
type UserPassword struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// hash of the password in the PHC string format: the algorithm, its parameters, the salt and the hash.
	Hash string `json:"hash"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:openapi-gen=false

// UserPasswordList is a list of UserPasswords.
type UserPasswordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the passwords.
	Items []UserPassword `json:"items"`
}
