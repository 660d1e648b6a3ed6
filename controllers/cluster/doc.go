// SPDX-License-Identifier: Apache-2.0

// Package cluster sums up a TalosCluster in its status: its machines, whether its Kubernetes API and its etcd are well,
// and whether its secrets bundle is there. It makes the bundle, once, for a cluster that asks for that and has no machine
// yet. The slots of control planes and what the search for machines found are other writers' parts of the status.
package cluster
