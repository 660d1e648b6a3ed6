// SPDX-License-Identifier: Apache-2.0

// Package slots is the reservation protocol behind the control-plane gate: no cluster ever has more approved control
// planes than spec.controlPlane.count + 1, whatever number of API servers approve at the same time, crash or wait.
//
// Storage gives compare-and-swap on one key and nothing across keys, so a place ("slot") is first taken in the
// TalosCluster, by CAS, and only then is the machine written, fenced on the version that was judged before the slot was
// taken. A slot goes only when its machine can't become approved by it any more: the machine is gone, or it was touched
// (its version moved) after the slot's token was read and the token is still the same.
//
// Why it holds: a machine becomes approved by a write on version m, and a slot with token t was claimed after m was read.
// To remove that slot, a remover must have read t and then have touched the machine, so m isn't its version any more and
// the write fails. So every approved control plane has a slot, slots never exceed the limit in any version of the one
// key that holds them, and lowering the count is judged in that key too.
//
// The package never approves anything and never writes anything but slots and the fence annotation.
package slots
