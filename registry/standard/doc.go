// SPDX-License-Identifier: Apache-2.0

// Package standard is the storage of a kind whose spec people write and whose status Ichor writes. A kind says what is
// its own (rules, columns, what the server records, further doors); this package does what is the same for all: each
// door changes its own fields only, the generation moves with the spec, and rules that need other objects are judged on
// the final object, inside the store's transaction, after mutating admission.
package standard
