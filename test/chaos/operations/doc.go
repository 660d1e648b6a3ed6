// SPDX-License-Identifier: Apache-2.0

// Package operations judges what operations did to a cluster, by what its machines and the members of its etcd wrote down
// themselves: whether Ichor ever took a control plane down while another one was missed, told a machine anything twice, stopped
// for a reason that isn't true, or left something behind. It is pure; test/crash gathers the histories.
package operations
