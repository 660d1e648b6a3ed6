// SPDX-License-Identifier: Apache-2.0

// Package kube is the one place that knows how a cluster's Kubernetes API is reached, and reads from it what Ichor must
// know of a machine: whether its Node is there and ready. It changes nothing but that it deletes a removed machine's Node.
package kube
