// SPDX-License-Identifier: Apache-2.0

// Package etcd runs the etcd member of a hollow control plane with the life that Talos gives it: it waits in Preparing
// until it is bootstrapped or can join an existing cluster as a learner, promotes itself, leaves, and is restored from a
// snapshot (Talos: internal/app/machined/pkg/system/services/etcd.go, internal/pkg/etcd). The member is a child process
// with the real etcd server; this package never touches another node's data.
//
// Two weaknesses of the real thing are kept, for they are what a manager of nodes must cope with: a member that loses
// power between being added and its first start can't be added again while its entry exists, and one that restarts while
// still a learner doesn't promote itself any more.
package etcd
