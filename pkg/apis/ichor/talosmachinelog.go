// SPDX-License-Identifier: Apache-2.0

package ichor

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosMachineLogOptions are the query parameters of talosmachines/log.
type TalosMachineLogOptions struct {
	metav1.TypeMeta
	// Service is one of Talos' services; required, unless Kernel is given.
	Service string
	// Kernel asks for the kernel's messages instead.
	Kernel bool
	// Follow goes on with what comes.
	Follow bool
	// TailLines asks for so many of the last lines; all by default.
	TailLines *int64
}
