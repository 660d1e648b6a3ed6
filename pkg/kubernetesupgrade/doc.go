// SPDX-License-Identifier: Apache-2.0

// Package kubernetesupgrade judges whether a cluster can go from the versions of Kubernetes that run to another one. It
// decides on what it is given, and asks nobody.
//
// The tables of what was removed are its own. The library that talosctl uses (github.com/siderolabs/go-kubernetes) keeps its
// tables to itself, reads nodes through a client of its own, can't say which patch is at fault, knows no 1.37, and brings
// controller-runtime and a registry client with it.
package kubernetesupgrade
