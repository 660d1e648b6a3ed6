// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package
// +k8s:conversion-gen=maesh.dev/ichor/pkg/apis/ichor
// +k8s:defaulter-gen=TypeMeta
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.maesh.ichor.v1alpha1
// +groupName=ichor.maesh.dev

// Package v1alpha1 holds the served types of the API group ichor.maesh.dev. What kubectl explain prints are the
// comments of this package. It holds shapes, defaults and conversions; rules live in ../validation and in registry/.
package v1alpha1
