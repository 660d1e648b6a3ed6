// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:conversion-gen:explicit-from=net/url.Values
// +k8s:openapi-gen=false

// TalosMachineLogOptions are the query parameters of talosmachines/log.
type TalosMachineLogOptions struct {
	metav1.TypeMeta `json:",inline"`
	// service is one of Talos' services, such as kubelet, apid, machined, containerd, cri, etcd, or ext-NAME of an extension.
	// Required, unless kernel is given.
	// +optional
	Service string `json:"service,omitempty"`
	// kernel asks for the kernel's messages instead. Defaults to false.
	// +optional
	Kernel bool `json:"kernel,omitempty"`
	// follow goes on with what comes, for four hours at most. Defaults to false.
	// +optional
	Follow bool `json:"follow,omitempty"`
	// tailLines asks for so many of the last lines; all that there are by default. The kernel's messages can be followed
	// from their beginning, or, with 0, from now on.
	// +optional
	TailLines *int64 `json:"tailLines,omitempty"`
}
