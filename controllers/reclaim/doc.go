// SPDX-License-Identifier: Apache-2.0

// Package reclaim carries MachineReclaims out: it resets machines that another Talos cluster configured, with the client
// configuration of that cluster. Who the machine is, what would be wiped and whether its cluster can do without it are read
// over the very connection on which it is then told; that it is about to be told is in the status before. What became of
// it is read from the machine, so that another process, after a crash at any instruction, goes on where this one was.
//
// disks.go and quorum.go decide without asking anybody. The package writes to no machine but by a reset, and only to one
// whose UUID a person has typed.
package reclaim
