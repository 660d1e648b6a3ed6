// SPDX-License-Identifier: Apache-2.0

// Package approvalplan is the file that approves a rack: its document type, how it is read and written, and what it means
// for the machines that are known. It is pure. A plan is one decision of a person about many machines, so everything that
// is wrong with it is told at once, each fault with its line, and nothing of a plan with a fault is carried out.
//
// It owns no rule about machines: what the server refuses, it refuses. Only what the server can't see, because it is asked
// about one machine at a time, is judged here: which machine an entry means, what two entries have in common, and how many
// control planes the whole plan makes.
package approvalplan
