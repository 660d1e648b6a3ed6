// SPDX-License-Identifier: Apache-2.0

// Package operation carries TalosOperations out. An operation is planned, claims its cluster, and is then done one machine
// at a time, step by step. What is about to be done is in the status before it is done, and whether it is done is read from
// the machine and its Node, so that another process, after a crash at any instruction, goes on where this one was.
//
// plan.go and order.go decide without asking anybody; steps*.go hold what there is to do on a machine; run.go moves an
// operation on.
package operation
