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
// # Rules
//
// In the cluster's key, each in the same compare-and-swap as the change it judges:
//
//   - count: a lower count is judged against the slots that are held (the validation of TalosCluster).
//   - hostname: no two slots have one hostname.
//   - slot per UID: a slot belongs to a machine's UID; another machine of the same name has to claim its own.
//   - new token: claiming a slot again gives it a new token, which stops a remover that has read the old one.
//   - rename: a slot with another hostname isn't rewritten but removed, as every slot is, and claimed anew.
//
// When a machine is written as approved:
//
//   - version: the write succeeds only on the version that was read before the claim.
//   - UID: and only on the machine that was read. Versions alone would do where no two objects ever share one, as
//     etcd's revisions; the protocol doesn't lean on that.
//   - final object: what is stored in the end, after patching and admission, is what was claimed.
//   - cluster UID: the approval records the cluster in which the slot was claimed, not an earlier one of its name.
//
// When a slot is removed:
//
//   - touch: its machine is changed first, unless that machine is gone or is approved already.
//   - token: it goes only with the token that was read before the touch.
//   - quorum: what is judged was read from a quorum, not from a cache.
//   - no release: an approval that fails gives nothing back; another of the same machine may rely on the slot.
//
// The tests leave out each rule in turn and find, in every order that steps can have, what goes wrong without it.
//
// The package never approves anything and never writes anything but slots and the fence annotation.
package slots
