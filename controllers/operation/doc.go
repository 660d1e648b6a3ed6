// SPDX-License-Identifier: Apache-2.0

// Package operation carries TalosOperations out. An operation is planned, claims its cluster, and is then done one machine
// at a time, step by step. What is about to be done is in the status before it is done, and whether it is done is read from
// the machine and its Node, so that another process, after a crash at any instruction, goes on where this one was.
//
// kinds.go says what a type of operation consists of; each type has a file of its own. plan.go decides without asking
// anybody; node.go and gate.go hold what there is to do on a machine for several types; run.go, rounds.go and step.go move an
// operation on.
package operation
