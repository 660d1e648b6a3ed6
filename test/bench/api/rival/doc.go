// SPDX-License-Identifier: Apache-2.0

// Package rival is what Ichor is compared with: machines and clusters of the same types as custom resources, in a group
// of their own, as a competent project would write them without an API server of its own: structural schemas from the
// types, status subresources, columns, selectable fields, rules in CEL, the right to approve asked for by an admission
// policy inside the kube-apiserver, and a validating webhook (Gate) for what needs another object.
//
// The webhook has one gate that is correct, in the simplest way that is (a slot is taken in the cluster by
// compare-and-swap before the machine is let through), and two that count and have a race, as most have.
package rival
