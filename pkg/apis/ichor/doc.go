// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package
// +groupName=ichor.maesh.dev

// Package ichor holds the internal types of the API group ichor.maesh.dev: what strategies and storage work with, and
// the hub that every served version converts to. The served versions carry the documentation of each field.
package ichor
