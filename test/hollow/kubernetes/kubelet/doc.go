// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the part of a kubelet that the rest of a cluster sees, and the part of machined that dresses its
// Node: it gets a client certificate with the cluster's bootstrap token and renews it, registers the Node, renews its
// Lease, reports the node's status, mirrors static pods, and applies the labels, annotations and taints of the machine
// configuration as Talos does (Talos: internal/app/machined/pkg/controllers/k8s). It runs no containers. One goroutine
// and one connection serve a node, so that a process can host thousands.
package kubelet
