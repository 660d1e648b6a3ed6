// SPDX-License-Identifier: Apache-2.0

package ichor

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// UserPassword is how the server stores the password of an IchorUser: a hash, under a key of its own, named by the
// user's UID. No endpoint serves it; it is in this package because it is stored like everything else.
type UserPassword struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// hash of the password in the PHC string format: the algorithm, its parameters, the salt and the hash.
	Hash string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// UserPasswordList is a list of UserPasswords.
type UserPasswordList struct {
	metav1.TypeMeta
	metav1.ListMeta
	// items are the passwords.
	Items []UserPassword
}
